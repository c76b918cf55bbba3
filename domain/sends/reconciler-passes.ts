import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

const kind = "sends";

export interface ReconcilerPass {
  after: string;
  failed: number;
}

export async function readPass(em: EntityManager): Promise<ReconcilerPass> {
  const pass = await kysely(em)
    .insertInto("reconciler_passes")
    .values({ kind })
    .onConflict((conflict) => conflict.column("kind").doUpdateSet({ kind }))
    .returning(["after_id", "failed"])
    .executeTakeFirstOrThrow();
  return { after: pass.after_id, failed: pass.failed };
}

/** Keeps the place of a pass under way, so that the next run continues there when this one is cut off. */
export async function keepPlace(em: EntityManager, { after, failed }: ReconcilerPass): Promise<void> {
  await kysely(em).updateTable("reconciler_passes").set({ after_id: after, failed }).where("kind", "=", kind).execute();
}

/** Ends a pass: the next one begins anew. Only one in which no item failed counts as complete. */
export async function endPass(em: EntityManager, failed: number): Promise<void> {
  await kysely(em)
    .updateTable("reconciler_passes")
    .set({ after_id: "", failed: 0, ...(failed === 0 && { completed_at: sql<string>`clock_timestamp()` }) })
    .where("kind", "=", kind)
    .execute();
}

/** One without any pass is missing. */
export async function readPassAges(em: EntityManager): Promise<Record<string, number>> {
  const rows = await kysely(em)
    .selectFrom("reconciler_passes")
    .select(["kind", sql<number>`extract(epoch from clock_timestamp() - completed_at)::float8`.as("seconds")])
    .execute();
  return Object.fromEntries(rows.map(({ kind, seconds }) => [kind, seconds]));
}
