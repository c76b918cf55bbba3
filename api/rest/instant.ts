/** A point in time as the API shows it: ISO 8601, UTC, milliseconds. Of a field of an entity. */
export const instant = (date: Date): string => date.toISOString();

export const instantOrNull = (date: Date | null | undefined): string | null => date?.toISOString() ?? null;

/** The same of a column that Kysely read: Postgres's text, such as `2026-08-15 10:00:00.5+00`. */
export const instantOfText = (text: string): string => new Date(text).toISOString();

export const instantOfTextOrNull = (text: string | null): string | null => (text === null ? null : instantOfText(text));
