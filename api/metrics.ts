import { Counter, Gauge, Histogram, Registry } from "prom-client";
import type { ConnectionPool } from "../db/pool.ts";
import { watchConnections } from "../db/pool-metrics.ts";
import type { HitMetrics } from "./public/hit-buffer.ts";

export interface EndedRequest {
  method: string;
  /** The path's pattern; undefined where no route took it. */
  route: string | undefined;
  /** Null for a client that disconnected before its answer. */
  status: number | null;
  durationMs: number;
}

export interface ApiMetrics {
  registry: Registry;
  requestEnded: (request: EndedRequest) => void;
  unreadableEvents: (count: number) => void;
  watchConnections: (connections: ConnectionPool) => void;
  hits: HitMetrics;
}

function openHitMetrics(registry: Registry): HitMetrics {
  const registers = [registry];
  const recorded = new Counter({
    name: "mailkeel_tracking_hits_total",
    help: "Opens and clicks that were recorded, by the rule that their requests alone meet, or else `none`",
    labelNames: ["kind", "rule"],
    registers,
  });
  const dropped = new Counter({
    name: "mailkeel_tracking_hits_dropped_total",
    help: "Opens and clicks that were dropped because too many waited for Postgres, or it refused them",
    registers,
  });
  const ignored = new Counter({
    name: "mailkeel_tracking_hits_ignored_total",
    help: "Opens and clicks that were not recorded because their mail had too many in a minute",
    registers,
  });
  const hits = new Gauge({
    name: "mailkeel_tracking_hits_waiting",
    help: "Opens and clicks of this process that Postgres does not have yet",
    registers,
  });
  return {
    recorded: (all) => {
      for (const { kind, rule, count } of all) recorded.inc({ kind, rule: rule ?? "none" }, count);
    },
    dropped: (count) => dropped.inc(count),
    ignored: () => ignored.inc(),
    waiting: (count) => hits.set(count),
  };
}

/** The metrics of an API process, with the label by which those of the worker pools are told apart. */
export function openMetrics(): ApiMetrics {
  const registry = new Registry();
  registry.setDefaultLabels({ pool: "api" });
  const unreadable = new Counter({
    name: "mailkeel_provider_events_unreadable_total",
    help: "Events about mails of this service that their provider signed and this version cannot read",
    registers: [registry],
  });
  const requests = new Histogram({
    name: "mailkeel_http_request_seconds",
    help: "Requests to the API, public pages and providers' webhooks, by the pattern of their path",
    labelNames: ["method", "route", "status"],
    buckets: [0.01, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30],
    registers: [registry],
  });
  return {
    registry,
    requestEnded: ({ method, route = "none", status, durationMs }) => {
      // A client may try every method on every path: those that a path refuses are one series.
      const labels = { method: status === 405 ? "none" : method, route, status: status ?? "closed" };
      requests.observe(labels, durationMs / 1_000);
    },
    unreadableEvents: (count) => unreadable.inc(count),
    watchConnections: (connections) => watchConnections(registry, connections),
    hits: openHitMetrics(registry),
  };
}
