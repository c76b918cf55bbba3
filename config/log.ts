import { type DestinationStream, type Logger, pino } from "pino";
import type { Env } from "./env.ts";
import { scrubError } from "./scrub.ts";

/** No address, key or token leaves the process by a log line. */
export function openLog(
  env: Pick<Env, "LOG_LEVEL">,
  service: string,
  to: DestinationStream = pino.destination(1),
): Logger {
  return pino({ level: env.LOG_LEVEL, base: { service }, serializers: { err: scrubError, error: scrubError } }, to);
}

const MINUTE_MS = 60_000;

/** For lines that each request would repeat. */
export function atMostOnceAMinute(): (key: string, act: () => void) => void {
  const actedAt = new Map<string, number>();
  return (key, act) => {
    const now = performance.now();
    if (now - (actedAt.get(key) ?? Number.NEGATIVE_INFINITY) < MINUTE_MS) return;
    actedAt.set(key, now);
    act();
  };
}
