import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

export type UnfinishedSend = Awaited<ReturnType<typeof readUnfinishedSends>>[number];

/** Confirmed sends that need a workflow, by the index `sends_open`. @param after the last id of the page before */
export function readUnfinishedSends(em: EntityManager, after: string, limit: number) {
  return kysely(em)
    .selectFrom("sends")
    .select(["id", "team_id", "environment", "resource_type", "resource_id", "status"])
    .where("id", ">", after)
    .where((eb) =>
      eb.or([
        eb("status", "in", ["SCHEDULED", "SENDING", "PAUSED"]),
        eb("settled_at", "is", null),
        eb("review_until", ">", sql<string>`now()`),
      ]),
    )
    .orderBy("id")
    .limit(limit)
    .execute();
}
