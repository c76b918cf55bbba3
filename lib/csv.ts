/** A line of CSV (RFC 4180); null is an empty field. */
export function csvLine(fields: readonly (string | number | null)[]): string {
  const cells = fields.map((field) => {
    const text = String(field ?? "");
    return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
  });
  return `${cells.join(",")}\r\n`;
}

/**
 * Text that a spreadsheet would run as a formula gets an apostrophe in front, which spreadsheets take for "this is text"; so
 * does text with an apostrophe there, which would be read back without it. Where commas part decimals, a spreadsheet parts
 * cells at semicolons.
 */
export const withoutFormula = (text: string): string => text.replace(/(?<=^|;)(?=['"]*[=+\-@\t\r])/g, "'");

/** The text as it was before `withoutFormula`. */
export const originalText = (text: string): string => text.replace(/(?<=^|;)'(?=['"]*[=+\-@\t\r])/g, "");
