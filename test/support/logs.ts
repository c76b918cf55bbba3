import { readFileSync } from "node:fs";
import { dirname } from "node:path";
import { eventually } from "./eventually.ts";

export type LogLine = Record<string, unknown>;

/** Waits for lines in the log of a process of the stack, e.g. `dispatch`. @returns all that fit */
export async function untilLogged(process: string, fits: (line: LogLine) => boolean): Promise<LogLine[]> {
  let found: LogLine[] = [];
  await eventually(
    () => {
      found = logLines(process).filter(fits);
      return found.length > 0;
    },
    { what: `a line in the log of ${process}` },
  );
  return found;
}

function logLines(name: string): LogLine[] {
  const file = process.env["MAILKEEL_STACK"];
  if (!file) throw new Error("run with npm test");
  // The last line may still be under way.
  const lines = readFileSync(`${dirname(file)}/logs/${name}.log`, "utf8")
    .split("\n")
    .slice(0, -1);
  // Node writes warnings of its own.
  return lines.flatMap((line) => (line.startsWith("{") ? [JSON.parse(line) as LogLine] : []));
}
