import { readFileSync } from "node:fs";

/** Clock ticks in a second, as /proc counts CPU time. Linux has it at 100 on every machine this runs on. */
export const TICKS = 100;

export interface ProcessStat {
  parent: number;
  /** Its own CPU time, in ticks. */
  own: number;
  /** That of its children that have ended and were waited for. */
  ended: number;
}

/** @returns undefined for a process that has ended, and where the system has no `/proc` */
export function readStat(pid: number): ProcessStat | undefined {
  try {
    const text = readFileSync(`/proc/${pid}/stat`, "utf8");
    // The name is in brackets and may hold anything.
    const fields = text.slice(text.lastIndexOf(")") + 2).split(" ");
    const at = (field: number) => Number(fields[field - 3]); // numbered as in proc(5)
    return { parent: at(4), own: at(14) + at(15), ended: at(16) + at(17) };
  } catch {
    return undefined;
  }
}
