/** A cell of a table, a figure of the JSON. */
export type Figure = string | number | boolean | null;

/** One row of a table; its keys are the columns. */
export type Row = Record<string, Figure>;

/** The result of a measurement. */
export interface BenchReport {
  /** The measurement's name. */
  bench: string;
  /** The options of the run. */
  options: Record<string, Figure>;
  /** Tables by their heading. */
  tables: Record<string, Row[]>;
  /** Assumptions that did not hold; the figures count only if there is none. */
  problems: string[];
}

/** The middle one; of an even number, the mean of the two in the middle. */
export function median(values: readonly number[]): number {
  const sorted = [...values].sort((a, b) => a - b);
  const upper = sorted[Math.floor(sorted.length / 2)] ?? Number.NaN;
  const lower = sorted[Math.ceil(sorted.length / 2) - 1] ?? Number.NaN;
  return (upper + lower) / 2;
}

/**
 * The value that a share of all values do not exceed.
 * @param sorted in ascending order
 * @param share 0.99 for the 99th percentile
 * @returns NaN where there are no values
 */
export const quantile = (sorted: readonly number[], share: number): number =>
  sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? Number.NaN;

/** A number with so many digits behind the point. */
export function round(value: number, digits = 0): number {
  const factor = 10 ** digits;
  return Math.round(value * factor) / factor;
}

/** Milliseconds that `work` takes, and its result. */
export async function timed<T>(work: () => Promise<T>): Promise<{ ms: number; result: T }> {
  const startedAt = performance.now();
  const result = await work();
  return { ms: performance.now() - startedAt, result };
}

const cell = (figure: Figure | undefined): string => {
  if (figure === undefined || figure === null) return "";
  return typeof figure === "number" ? figure.toLocaleString("en", { maximumFractionDigits: 3 }) : String(figure);
};

function table(rows: readonly Row[]): string {
  const columns = [...new Set(rows.flatMap((row) => Object.keys(row)))];
  const lines = [columns, ...rows.map((row) => columns.map((column) => cell(row[column])))];
  const widths = columns.map((_, i) => Math.max(...lines.map((line) => line[i]?.length ?? 0)));
  const isNumber = columns.map((column) => rows.every((row) => typeof (row[column] ?? 0) === "number"));
  return lines
    .map((line) =>
      line
        .map((text, i) => (isNumber[i] ? text.padStart(widths[i] ?? 0) : text.padEnd(widths[i] ?? 0)))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** The report as people read it. */
export function toText({ bench, options, tables, problems }: BenchReport): string {
  const given = Object.entries(options).map(([name, value]) => `${name} ${value}`);
  const parts = [`${bench}: ${given.join(", ")}`];
  for (const [heading, rows] of Object.entries(tables)) parts.push(`${heading}\n${table(rows)}`);
  if (problems.length > 0) parts.push(`NOT CORRECT:\n${problems.map((problem) => `  ${problem}`).join("\n")}`);
  return parts.join("\n\n");
}
