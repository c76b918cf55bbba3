import type { Logger } from "pino";
import { Counter, Registry } from "prom-client";
import { atMostOnceAMinute } from "../config/log.ts";

export interface ApiMetrics {
  registry: Registry;
  /** Reports a request, or a failed authentication, that this process counted alone, for this error of Postgres. */
  countedAlone: (error: unknown) => void;
}

/** The metrics of an API process. */
export function openMetrics(log: Logger): ApiMetrics {
  const registry = new Registry();
  const countedAlone = new Counter({
    name: "mailkeel_requests_counted_alone_total",
    help: "Requests and failed authentications that this process counted alone, because Postgres did not",
    registers: [registry],
  });
  const rarely = atMostOnceAMinute();
  return {
    registry,
    countedAlone: (err) => {
      countedAlone.inc();
      rarely("countedAlone", () => log.warn({ err }, "Postgres does not count requests: each process counts alone"));
    },
  };
}
