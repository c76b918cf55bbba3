import { sql } from "kysely";
import { type EntityManager, kysely } from "./orm.ts";

/** A transaction takes its clock before it shows in pg_stat_activity; a second is far more than that gap. */
const SLACK_MS = 1_000;

/**
 * Every transaction that began before this time, less `slackMs`, has ended. In ms since 1970; not in a transaction.
 * @returns null when the start of a transaction cannot be seen: of another role's, or of a prepared one
 */
export async function queryVisibleBeforeMs(em: EntityManager, slackMs = SLACK_MS): Promise<number | null> {
  const { rows } = await sql<{ visible_before: string; unknown: boolean }>`
    select
      floor(extract(epoch from least(now(), min(xact_start))) * 1000)::bigint as visible_before,
      -- To a role that may not look into a session only its transaction id is shown, not when it began.
      coalesce(bool_or(xact_start is null and backend_xid is not null), false)
        or exists (select from pg_prepared_xacts where database = current_database()) as unknown
    from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid()
      and backend_type is distinct from 'autovacuum worker'
      -- An idle session that listens takes a notification in a transaction that shows the start of its last statement,
      -- long ago. It writes nothing. A session that may write is never idle in its transaction by this name.
      and state is distinct from 'idle'`.execute(kysely(em));
  const [row] = rows;
  return row && !row.unknown ? Number(row.visible_before) - slackMs : null;
}
