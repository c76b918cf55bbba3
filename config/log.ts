import { type DestinationStream, type Logger, pino } from "pino";
import type { Env } from "./env.ts";
import { scrubError } from "./scrub.ts";
import { logFields } from "./tracing.ts";

/** No address, key or token leaves the process by a log line. */
export function openLog(
  env: Pick<Env, "LOG_LEVEL" | "OTEL_EXPORTER_OTLP_ENDPOINT">,
  service: string,
  to: DestinationStream = pino.destination(1),
): Logger {
  const serializers = { err: scrubError, error: scrubError };
  const mixin = env.OTEL_EXPORTER_OTLP_ENDPOINT !== undefined && { mixin: logFields };
  return pino({ level: env.LOG_LEVEL, base: { service }, serializers, ...mixin }, to);
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
