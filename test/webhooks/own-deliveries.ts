import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { makeDatabase } from "../support/own-database.ts";
import { makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";

/** After five executions Postgres keeps the plan of a prepared statement. */
export const FIRST_PASSES = 8;

/** A team with endpoints that have succeeded, in a database of its own. */
interface OwnDeliveries {
  /** One connection throughout: each keeps the plans of its prepared statements. */
  tx: EntityManager;
  webhookIds: string[];
  /** Makes new deliveries for each endpoint that is named. @returns their ids */
  insert(count: number, webhookIds?: string[]): Promise<string[]>;
  /** Rows of deliveries that were read so far. */
  readRows(): Promise<number>;
}

export async function withOwnDeliveries(endpoints: number, work: (own: OwnDeliveries) => Promise<void>): Promise<void> {
  const { vault } = await makeTeam();
  const database = await makeDatabase();
  try {
    await database.orm.em.fork().transactional(async (tx) => {
      await sql`insert into teams (id, name, plan) values ('team', 'Team', 'BUSINESS')`.execute(kysely(tx));
      const team = { team: { id: "team" }, em: tx, vault };
      const webhookIds: string[] = [];
      for (let n = 0; n < endpoints; n++) webhookIds.push((await makeEndpoint(team, { url: PUBLIC_URL })).id);
      await sql`update webhook_health set last_success_at = now()`.execute(kysely(tx));
      await work({
        tx,
        webhookIds,
        insert: async (count, whose = webhookIds) => {
          const first = newId("delivery");
          const { rows } = await sql<{ id: string }>`
            insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type)
            select ${first} || '/' || w || '/' || n, 'team', 'LIVE', w, 'event', 'newsletter.started'
            from unnest(${whose}::text[]) w, generate_series(1, ${count}::int) n
            returning id`.execute(kysely(tx));
          return rows.map(({ id }) => id);
        },
        readRows: async () => {
          const { rows } = await sql<{ read: number }>`
            select (seq_tup_read + idx_tup_fetch)::int as read from pg_stat_xact_user_tables
            where relname = 'webhook_deliveries'`.execute(kysely(tx));
          return rows[0]?.read ?? 0;
        },
      });
    });
  } finally {
    await database.drop();
  }
}
