import { Gauge, type Registry } from "prom-client";
import type { ActivityDeps } from "../activities/deps.ts";
import { createReplayActivities, type ReplayActivities } from "../activities/webhooks/bulk-replay.ts";
import { BusyEndpoints } from "../activities/webhooks/busy-endpoints.ts";
import { createDeliveryActivities, type DeliveryActivities } from "../activities/webhooks/deliveries.ts";
import { createDeliveryClient } from "../activities/webhooks/http-client.ts";
import { userAgent } from "../domain/webhooks/headers.ts";
import { allowedHostsWarning, openUrlGuard } from "../domain/webhooks/url-guard.ts";
import { OutboxRelay } from "./outbox-relay.ts";

/** The pool that delivers webhooks: the attempts, and the relay that starts them. Any number of them may run. */
export function startWebhooks(
  deps: ActivityDeps,
  registry: Registry,
): {
  activities: Record<keyof (DeliveryActivities & ReplayActivities), unknown>;
  connected: OutboxRelay["connected"];
  close(): Promise<void>;
} {
  const { env, log } = deps;
  const warning = allowedHostsWarning(env);
  if (warning !== undefined) log.warn(warning);
  const client = createDeliveryClient({
    guard: openUrlGuard(env),
    timeoutMs: env.WEBHOOK_TIMEOUT_MS,
    userAgent: userAgent(env.PUBLIC_URL),
  });
  const busyEndpoints = new BusyEndpoints();
  const relay = new OutboxRelay(deps, (webhookIds) => busyEndpoints.wake(webhookIds));
  new Gauge({
    name: "mailkeel_webhook_relay_age_seconds",
    help: "Seconds since the relay of this process last took a batch of events, or heard that another one leads",
    registers: [registry],
    collect() {
      this.set(relay.ageSeconds);
    },
  });
  new Gauge({
    name: "mailkeel_webhook_relay_leads",
    help: "1 while the relay of this process is the leader",
    registers: [registry],
    collect() {
      this.set(relay.isLeader ? 1 : 0);
    },
  });
  return {
    activities: {
      ...createDeliveryActivities({ ...deps, client, busyEndpoints, onRoom: () => relay.wakeLeader() }),
      ...createReplayActivities(deps),
    },
    connected: (temporal) => relay.connected(temporal),
    close: async () => {
      await relay.close();
      await client.close();
    },
  };
}
