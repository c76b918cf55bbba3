import { Gauge, type Registry } from "prom-client";
import type { ActivityDeps } from "../activities/deps.ts";
import { type DeliveryActivities, EndpointDeliveries } from "../activities/webhooks/deliver-due.ts";
import { createDeliveryClient } from "../activities/webhooks/http-client.ts";
import { userAgent } from "../domain/webhooks/headers.ts";
import { allowedHostsWarning, openUrlGuard } from "../lib/url-guard.ts";
import { OutboxRelay } from "./outbox-relay.ts";

/** The pool that delivers webhooks: the runs of endpoints, and the relay that starts them. Any number of processes may run. */
export function startWebhooks(
  deps: ActivityDeps,
  registry: Registry,
): {
  activities: Record<keyof DeliveryActivities, unknown>;
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
  const deliveries = new EndpointDeliveries({ ...deps, client });
  const relay = new OutboxRelay(deps, deliveries);
  new Gauge({
    name: "mailkeel_webhook_relay_age_seconds",
    help: "Seconds since the relay of this process last looked at the outbox",
    registers: [registry],
    collect() {
      this.set(relay.ageSeconds);
    },
  });
  return {
    activities: deliveries.activities,
    connected: (temporal) => relay.connected(temporal),
    close: async () => {
      await relay.close();
      client.close();
    },
  };
}
