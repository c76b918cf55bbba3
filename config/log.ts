import { type Logger, pino } from "pino";
import type { Env } from "./env.ts";
import { scrubError } from "./scrub.ts";

/** A logger whose errors are scrubbed: no address, key or token leaves the process by a log line. */
export function openLog(env: Pick<Env, "LOG_LEVEL">, service: string): Logger {
  return pino({ level: env.LOG_LEVEL, base: { service }, serializers: { err: scrubError, error: scrubError } });
}
