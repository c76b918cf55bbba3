import { SettingsError } from "../config/env.ts";

/** The error in one line: a stack trace is of no use at a command line. */
export function lineOf(error: unknown): string {
  if (!(error instanceof Error)) return String(error);
  if (error instanceof SettingsError) return error.message;
  // A connection that failed on every address of a host has its reasons inside.
  const [inner] = error instanceof AggregateError ? error.errors : [];
  const message = error.message || lineOf(inner);
  const param = "param" in error && typeof error.param === "string" ? ` (${error.param})` : "";
  return (message.split("\n")[0] ?? "") + param;
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
