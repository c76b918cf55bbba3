import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { pauseSend } from "./lifecycle.ts";
import { PAUSE_REASONS } from "./pause-reasons.ts";

export type UnfinishedSend = Awaited<ReturnType<typeof readPage>>[number];

const PAGE = 500;

/** Reads confirmed sends that need a workflow, page by page, by the index `sends_open`. */
export async function* readUnfinishedSends(em: EntityManager): AsyncGenerator<UnfinishedSend[]> {
  for (let after: string | undefined = ""; after !== undefined; ) {
    const page = await readPage(em, after);
    yield page;
    after = page[PAGE - 1]?.id;
  }
}

const readPage = (em: EntityManager, after: string) =>
  kysely(em)
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
    .limit(PAGE)
    .execute();

/** For a restored database, before a process mails by it: pauses each send that has not ended. @returns how many */
export async function holdOpenSends(em: EntityManager): Promise<number> {
  let held = 0;
  for await (const page of readUnfinishedSends(em)) {
    for (const { id } of page) {
      const { state } = await pauseSend(em, id, PAUSE_REASONS.databaseRestored);
      if (state?.status === "PAUSED") held++;
    }
  }
  return held;
}
