/** A point in time as the API shows it (ISO 8601, UTC, milliseconds), of Postgres's text such as `2026-08-15 10:00:00.5+00`. */
export const instantOfText = (text: string): string => new Date(text).toISOString();

export const instantOfTextOrNull = (text: string | null): string | null => (text === null ? null : instantOfText(text));
