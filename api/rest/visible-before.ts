import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** How long a reading is used, in milliseconds: pg_stat_activity costs more than a page of a list. */
const MAX_AGE_MS = 1_000;

/** A transaction takes its clock before it shows in pg_stat_activity; a second is far more than that gap. */
const SLACK_MS = 1_000;

interface Reading {
  /** `performance.now()` before it was read. */
  begunAt: number;
  visibleBeforeMs: Promise<number | null>;
}

/** The latest reading, by pool. */
const readings = new WeakMap<object, Reading>();

/**
 * The instant before which every change is visible: the start of the oldest open transaction, less a second, because
 * `updated_at` is the start of the transaction that wrote it. In milliseconds since 1970, up to a second old: an older
 * value is as safe, because what was visible then is visible now. Read it before the page it is for, outside a
 * transaction.
 * @returns null when the start of a transaction cannot be seen: of another role's, or of a prepared one
 */
export function readVisibleBeforeMs(em: EntityManager): Promise<number | null> {
  const pool = em.getDriver();
  const latest = readings.get(pool);
  if (latest && performance.now() - latest.begunAt < MAX_AGE_MS) return latest.visibleBeforeMs;
  const reading = { begunAt: performance.now(), visibleBeforeMs: queryVisibleBeforeMs(em) };
  readings.set(pool, reading);
  // The requests that share a failed reading fail; the next one reads anew.
  reading.visibleBeforeMs.catch(() => {
    if (readings.get(pool) === reading) readings.delete(pool);
  });
  return reading.visibleBeforeMs;
}

async function queryVisibleBeforeMs(em: EntityManager): Promise<number | null> {
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
  return row && !row.unknown ? Number(row.visible_before) - SLACK_MS : null;
}
