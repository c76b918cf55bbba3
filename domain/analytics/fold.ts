import { sql } from "kysely";
import { FIGURES, type Figure } from "../../db/entities/analytics.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { figureColumns, WHOLE_TENANT } from "./figures.ts";

/**
 * Adds changes to their days, of their resource and of their tenant, and to the step that was mailed, and deletes them, in one
 * statement: each counts once, also when the process dies. @returns changes that were added
 */
export async function foldChanges(em: EntityManager, limit: number): Promise<number> {
  const ofStep = (figure: Figure) => sql`sum(count) filter (where figure = ${sql.lit(figure)})`;
  const sums = sql.join(
    FIGURES.map((figure) => sql`coalesce(sum(count) filter (where figure = ${sql.lit(figure)}), 0)`),
  );
  const added = sql.join(
    FIGURES.map((figure) => sql`${sql.id(figure)} = d.${sql.id(figure)} + excluded.${sql.id(figure)}`),
  );
  const fold = sql<{ folded: number }>`
    with taken as (
      delete from analytics_changes where ctid = any(array(
        select ctid from analytics_changes limit ${limit} for update skip locked))
      returning team_id, environment, resource_id, step_version_id, day, figure, count
    ), steps as (
      update sequence_step_versions v
      set sent = v.sent + coalesce(m.sent, 0), opened = v.opened + coalesce(m.opened, 0), clicked = v.clicked + coalesce(m.clicked, 0)
      from (
        select step_version_id as id, ${ofStep("sent")} as sent, ${ofStep("opened_unique")} as opened, ${ofStep("clicked_unique")} as clicked
        from taken where step_version_id is not null group by 1) m
      where v.id = m.id
    ), counted as (
      select team_id, environment, resource_id, day, figure, count from taken where resource_id <> ${WHOLE_TENANT}
      union all
      select team_id, environment, ${WHOLE_TENANT}, day, figure, count from taken
    ), added as (
      insert into analytics_days as d (team_id, environment, resource_id, day, ${figureColumns})
      select team_id, environment, resource_id, day, ${sums} from counted group by 1, 2, 3, 4
      -- In one order, so that two calls with the same days do not deadlock.
      order by team_id collate "C", environment collate "C", resource_id collate "C", day
      on conflict (team_id, environment, resource_id, day) do update set ${added}
    )
    select count(*)::int as folded from taken`;
  // Two calls with the same steps may deadlock.
  const { rows } = await transaction(em, (tx) => fold.execute(kysely(tx)));
  return rows[0]?.folded ?? 0;
}
