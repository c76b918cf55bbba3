import { SettingsError } from "../config/env.ts";
import { ApiError } from "../domain/errors.ts";
import type { AccountRefusal } from "../domain/sends/operators/inspection.ts";

export { csvLine } from "../lib/csv.ts";
export { toJson } from "../lib/json-object.ts";

/** The error in one line: a stack trace is of no use at a command line. */
export function lineOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof SettingsError) return error.message;
  if ("code" in error && error.code === "ENOENT" && "path" in error) return `There is no file ${error.path}.`;
  if ("code" in error && error.code === "EISDIR") return "It is a folder: name a file.";
  // A connection that failed on every address of a host has its reasons inside.
  const [inner] = error instanceof AggregateError ? error.errors : [];
  const message = error.message || lineOf(inner);
  const named = "param" in error && typeof error.param === "string" && !message.includes(error.param);
  const param = named ? ` (${error.param})` : "";
  return (message.split("\n")[0] ?? "") + param;
}

/** The error for `--json`: its code, that of the API where it has one, and the line. */
export function errorJson(error: unknown): { error: { code: string; message: string } } {
  const code = error instanceof ApiError ? error.code : error instanceof SettingsError ? "settings" : "failed";
  return { error: { code, message: lineOf(error) } };
}

type Cell = string | number | Date | null;

const cellText = (cell: Cell): string =>
  cell === null || cell === "" ? "-" : cell instanceof Date ? cell.toISOString() : String(cell).replace(/\s+/g, " ");

/** A header line, and a line for each record. @param none stands where there is no record */
export function table<T>(
  records: readonly T[],
  none: string,
  columns: Readonly<Record<string, (record: T) => Cell>>,
): string {
  if (records.length === 0) return none;
  const lines = [
    Object.keys(columns),
    ...records.map((each) => Object.values(columns).map((of) => cellText(of(each)))),
  ];
  const widths = Object.keys(columns).map((_, at) => Math.max(...lines.map((line) => line[at]?.length ?? 0)));
  return lines
    .map((line) =>
      line
        .map((cell, at) => cell.padEnd(widths[at] ?? 0))
        .join("  ")
        .trimEnd(),
    )
    .join("\n");
}

/** A line on a terminal that is written over; without a terminal it is not written. */
export function progressLine() {
  const { stderr } = process;
  const write = (text: string) => {
    if (stderr.isTTY) stderr.write(`\r\x1b[K${text}`);
  };
  return {
    show: write,
    clear: () => write(""),
    /** Writes a line that stays. */
    print: (text: string) => {
      write("");
      stderr.write(`${text}\n`);
    },
  };
}

/** "1 time", "2 times". @param thing in the singular; its plural ends in "s" */
export const counted = (count: number, thing: string): string => `${count} ${thing}${count === 1 ? "" : "s"}`;

/** That a server refuses an account, since when, and when it is tried again: a time that has passed waits for a send. */
export function refusedText({ count, since, reason, retryAt }: AccountRefusal): string {
  const next = Date.parse(retryAt) > Date.now() ? `tried again at ${retryAt}` : "tried again when a send needs it";
  return `refused ${counted(count, "time")} since ${since} (${reason}), ${next}`;
}

/** What becomes of a workflow that is missing or was cut off, while its send has not ended. */
export const RESTORED = "The reconciler starts it again within a minute.";
