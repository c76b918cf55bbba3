import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

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
