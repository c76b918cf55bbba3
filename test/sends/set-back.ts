import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { IsolationLevel, transaction } from "../../db/transaction.ts";
import type { Sender } from "../support/sending.ts";

/** Tables with a team's sends, in the order in which other statements lock them. */
const OF_TEAM = ["sends", "newsletters", "send_previews", "credit_balances", "credit_entries"] as const;
const OF_SENDS = ["send_lanes", "send_recipients", "send_counts"] as const;

/** @returns puts the copy in their place, as a restore does */
export async function backUpSends({ em, team }: Pick<Sender, "em" | "team">): Promise<() => Promise<void>> {
  const ofTeam = sql`team_id = ${team.id}`;
  const tables = [
    ...OF_TEAM.map((name) => ({ name, rows: ofTeam })),
    ...OF_SENDS.map((name) => ({ name, rows: sql`send_id in (select id from sends where ${ofTeam})` })),
    // They go with their newsletter.
    { name: "draft_versions", rows: ofTeam },
    { name: "newsletter_lists", rows: sql`newsletter_id in (select id from newsletters where ${ofTeam})` },
  ];
  const copies = new Map<string, string>();
  await transaction(
    em.fork(),
    async (tx) => {
      for (const { name, rows } of tables) {
        const { rows: found } = await sql<{ copy: string }>`
          select coalesce(jsonb_agg(to_jsonb(t)), '[]')::text as copy from ${sql.table(name)} t where ${rows}`.execute(
          kysely(tx),
        );
        copies.set(name, found[0]?.copy ?? "[]");
      }
    },
    { isolationLevel: IsolationLevel.REPEATABLE_READ },
  );
  return () =>
    transaction(em.fork(), async (tx) => {
      const db = kysely(tx);
      await sql`select from sends where ${ofTeam} for update`.execute(db);
      for (const { name, rows } of tables.toReversed())
        await sql`delete from ${sql.table(name)} where ${rows}`.execute(db);
      for (const { name } of tables) {
        await sql`insert into ${sql.table(name)} overriding system value
          select * from jsonb_populate_recordset(null::${sql.table(name)}, ${copies.get(name)}::jsonb)`.execute(db);
      }
    });
}
