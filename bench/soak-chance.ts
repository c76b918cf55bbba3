import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";

/** Numbers that a seed decides. */
export interface Random {
  /** A whole number, both ends included. */
  between(min: number, max: number): number;
  oneIn(n: number): boolean;
}

/** A generator of its own for each purpose, so that one's pace does not change another's choices. */
export function random(seed: number, purpose: string): Random {
  let state = createHash("sha256").update(`${seed} ${purpose}`).digest().readUInt32LE();
  // mulberry32
  const next = (): number => {
    state = (state + 0x6d2b79f5) | 0;
    let t = Math.imul(state ^ (state >>> 15), 1 | state);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  };
  const between = (min: number, max: number) => min + Math.floor(next() * (max - min + 1));
  return { between, oneIn: (n) => between(1, n) === 1 };
}

export function pick<T>(chance: Random, from: readonly T[]): T {
  return from[chance.between(0, from.length - 1)] as T;
}

/** The stack's processes as they are now, by name. */
export function currentPids(): Record<string, number> {
  const file = process.env["MAILKEEL_STACK"];
  if (file === undefined) throw new Error("no stack is running");
  return JSON.parse(readFileSync(file, "utf8")).pids;
}
