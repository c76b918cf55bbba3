import type { Logger } from "pino";
import { Counter, Registry } from "prom-client";
import { atMostOnceAMinute } from "../config/log.ts";
import type { ConnectionPool } from "../db/pool.ts";
import { watchConnections } from "../db/pool-metrics.ts";

export interface ApiMetrics {
  registry: Registry;
  /** Reports a request, or a failed authentication, that this process counted alone, for this error of Postgres. */
  countedAlone: (error: unknown) => void;
  /** Adds the connections to Postgres. */
  watchConnections: (connections: ConnectionPool) => void;
}

/** The metrics of an API process, with the label by which those of the worker pools are told apart. */
export function openMetrics(log: Logger): ApiMetrics {
  const registry = new Registry();
  registry.setDefaultLabels({ pool: "api" });
  const countedAlone = new Counter({
    name: "mailkeel_requests_counted_alone_total",
    help: "Requests and failed authentications that this process counted alone, because Postgres did not",
    registers: [registry],
  });
  const rarely = atMostOnceAMinute();
  return {
    registry,
    watchConnections: (connections) => watchConnections(registry, connections),
    countedAlone: (err) => {
      countedAlone.inc();
      rarely("countedAlone", () => log.warn({ err }, "Postgres does not count requests: each process counts alone"));
    },
  };
}
