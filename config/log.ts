import { type Logger, pino } from "pino";
import type { Env } from "./env.ts";
import { scrubError } from "./scrub.ts";

/** A logger whose errors are scrubbed: no address, key or token leaves the process by a log line. */
export function openLog(env: Pick<Env, "LOG_LEVEL">, service: string): Logger {
  return pino({ level: env.LOG_LEVEL, base: { service }, serializers: { err: scrubError, error: scrubError } });
}

const MINUTE_MS = 60_000;

/** Runs an action unless it ran for the same key less than a minute ago: for lines that each request would repeat. */
export function atMostOnceAMinute(): (key: string, act: () => void) => void {
  const actedAt = new Map<string, number>();
  return (key, act) => {
    const now = performance.now();
    if (now - (actedAt.get(key) ?? Number.NEGATIVE_INFINITY) < MINUTE_MS) return;
    actedAt.set(key, now);
    act();
  };
}
