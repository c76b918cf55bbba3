import type { EntityManager } from "../../db/orm.ts";
import { queryVisibleBeforeMs } from "../../db/visible-before.ts";

/** How long a reading is used, in milliseconds: pg_stat_activity costs more than a page of a list. */
const MAX_AGE_MS = 1_000;

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
