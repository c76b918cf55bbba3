/**
 * A point in time as the API shows it: ISO 8601, UTC, milliseconds. Entities give dates; rows read by Kysely give
 * Postgres's text (`2026-08-15 10:00:00.5+00`), whatever their types say.
 */
export function instant(value: Date | string): string {
  return new Date(value).toISOString();
}

/** The same for what may be absent. */
export const instantOrNull = (value: Date | string | null): string | null => (value === null ? null : instant(value));
