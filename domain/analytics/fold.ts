import { sql } from "kysely";
import { FIGURES } from "../../db/entities/analytics.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { figureColumns, WHOLE_TENANT } from "./figures.ts";

/**
 * Adds changes to their days, of their resource and of their tenant, and deletes them, in one statement: each counts once,
 * also when the process dies. @returns changes that were added
 */
export async function foldChanges(em: EntityManager, limit: number): Promise<number> {
  const sums = sql.join(
    FIGURES.map((figure) => sql`coalesce(sum(count) filter (where figure = ${sql.lit(figure)}), 0)`),
  );
  const added = sql.join(
    FIGURES.map((figure) => sql`${sql.id(figure)} = d.${sql.id(figure)} + excluded.${sql.id(figure)}`),
  );
  const { rows } = await sql<{ folded: number }>`
    with taken as (
      delete from analytics_changes where ctid = any(array(
        select ctid from analytics_changes limit ${limit} for update skip locked))
      returning team_id, environment, resource_id, day, figure, count
    ), counted as (
      select * from taken where resource_id <> ${WHOLE_TENANT}
      union all
      select team_id, environment, ${WHOLE_TENANT}, day, figure, count from taken
    ), added as (
      insert into analytics_days as d (team_id, environment, resource_id, day, ${figureColumns})
      select team_id, environment, resource_id, day, ${sums} from counted group by 1, 2, 3, 4
      -- In one order, so that two calls with the same days do not deadlock.
      order by team_id collate "C", environment collate "C", resource_id collate "C", day
      on conflict (team_id, environment, resource_id, day) do update set ${added}
    )
    select count(*)::int as folded from taken`.execute(kysely(em));
  return rows[0]?.folded ?? 0;
}
