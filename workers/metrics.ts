import { Counter, Gauge, Registry } from "prom-client";
import type { ActivityDeps } from "../activities/deps.ts";
import { collectProcessMetrics } from "../config/process-metrics.ts";
import { OUTCOMES } from "../db/entities/send.ts";
import type { ConnectionPool } from "../db/pool.ts";
import { watchConnections } from "../db/pool-metrics.ts";
import type { StateCounts } from "../domain/sends/ledger/counts.ts";
import { ATTEMPT_OUTCOMES } from "../domain/webhooks/outcomes.ts";

export interface PoolMetrics {
  registry: Registry;
  /** Counts recipients that came into these states; states that are no outcome are left out. */
  countMails: (counts: StateCounts) => void;
  countAttempts: ActivityDeps["countAttempts"];
  countRelayFailure: ActivityDeps["countRelayFailure"];
  countFailedPruning: ActivityDeps["countFailedPruning"];
  watchConnections: (connections: ConnectionPool) => void;
}

/**
 * A pool's own metrics, besides those of the Temporal SDK. No label holds an id, an address or anything a customer chose.
 * @param pool name of the pool, a label of everything
 * @param ready whether it takes work
 */
export function createMetrics(pool: string, ready: () => boolean): PoolMetrics {
  const registry = new Registry();
  registry.setDefaultLabels({ pool });
  collectProcessMetrics(registry);
  const registers = [registry];

  new Gauge({
    name: "mailkeel_pool_ready",
    help: "1 while the pool takes work",
    registers,
    collect() {
      this.set(ready() ? 1 : 0);
    },
  });
  const mails = new Counter({
    name: "mailkeel_mails_total",
    help: "Recipients settled, by outcome",
    labelNames: ["outcome"],
    registers,
  });
  // A rate needs a value to rise from.
  for (const outcome of OUTCOMES) mails.inc({ outcome }, 0);
  const attempts = new Counter({
    name: "mailkeel_webhook_attempts_total",
    help: "Attempts to deliver webhooks, by result",
    labelNames: ["outcome"],
    registers,
  });
  for (const outcome of ATTEMPT_OUTCOMES) attempts.inc({ outcome }, 0);
  const relayFailures = new Counter({
    name: "mailkeel_webhook_relay_failures_total",
    help: "Passes and sweeps of the relay that failed",
    registers,
  });
  const failedPrunings = new Counter({
    name: "mailkeel_retention_failures_total",
    help: "Batches of rows whose time has passed that could not be pruned",
    registers,
  });
  return {
    registry,
    countAttempts: (outcomes) => {
      for (const { status: outcome } of outcomes) attempts.inc({ outcome });
    },
    countRelayFailure: () => relayFailures.inc(),
    countFailedPruning: () => failedPrunings.inc(),
    countMails: (counts) => {
      for (const outcome of OUTCOMES) mails.inc({ outcome }, counts[outcome] ?? 0);
    },
    watchConnections: (connections) => watchConnections(registry, connections),
  };
}
