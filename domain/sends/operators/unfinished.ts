import { sql } from "kysely";
import { type EntityManager, kysely } from "../../../db/orm.ts";
import { pauseSend } from "../ledger/lifecycle.ts";
import { PAUSE_REASONS } from "../pause-reasons.ts";

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
    .select(["id", "team_id as teamId", "environment", "resource_type as type", "resource_id as resourceId", "status"])
    // Its start may have been moved while Temporal did not answer, and its workflow still sleep.
    .select(sql<boolean>`status = 'SCHEDULED' and send_at <= clock_timestamp()`.as("isDue"))
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

const kind = "sends";

/** The age of the reconciler's passes counts from the first one. */
export async function beginPass(em: EntityManager): Promise<void> {
  await kysely(em)
    .insertInto("reconciler_passes")
    .values({ kind })
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Records a pass that compared every send. */
export async function completePass(em: EntityManager): Promise<void> {
  await kysely(em)
    .updateTable("reconciler_passes")
    .set({ completed_at: sql<string>`clock_timestamp()` })
    .where("kind", "=", kind)
    .execute();
}

/** For how many seconds not every item was compared, by kind; one without any pass is missing. */
export async function readPassAges(em: EntityManager): Promise<Record<string, number>> {
  const rows = await kysely(em)
    .selectFrom("reconciler_passes")
    .select(["kind", sql<number>`extract(epoch from clock_timestamp() - completed_at)::float8`.as("seconds")])
    .execute();
  return Object.fromEntries(rows.map(({ kind, seconds }) => [kind, seconds]));
}
