import { collectDefaultMetrics, type Registry } from "prom-client";

/** Adds the metrics of Node.js, without the gauges that are named as counters: the gauges by type hold the same numbers. */
export function collectProcessMetrics(register: Registry): void {
  collectDefaultMetrics({ register });
  for (const kind of ["handles", "requests", "resources"]) register.removeSingleMetric(`nodejs_active_${kind}_total`);
}
