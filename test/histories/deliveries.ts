import type { Client } from "@temporalio/client";
import { newId } from "../../domain/ids.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { type Behaviour, openReceiver } from "../support/receiver.ts";
import { untilDetails } from "../support/temporal.ts";
import { emitSome, makeEndpoint, type TestEndpoint } from "../support/webhooks.ts";
import { askToWait, repairSecret, setEndpoint, untilAtRest, untilLog, workflowOf } from "../webhooks/observing.ts";

const TEN_MINUTES = 600;

interface Delivery {
  team: TestTeam;
  endpoint: TestEndpoint;
  handle: ReturnType<typeof workflowOf>;
  answer(behave: Behaviour): void;
}

const status =
  (code: number): Behaviour =>
  (_, response) =>
    void response.writeHead(code).end();

/** Each takes a workflow to its path and gives its id; the history is read once the workflow has ended. */
export async function deliveryPaths(temporal: Client): Promise<Record<string, () => Promise<string>>> {
  const behaviours = new Map<string, Behaviour>();
  const receiver = await openReceiver((received, ...rest) =>
    (behaviours.get(received.path) ?? status(204))(received, ...rest),
  );

  async function endpointThat(behave: Behaviour, set: Record<string, unknown> = {}): Promise<Delivery> {
    const path = `/${newId("webhook")}`;
    const answer = (next: Behaviour) => void behaviours.set(path, next);
    answer(behave);
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}${path}`, set });
    return { team, endpoint, handle: workflowOf(temporal, endpoint.id), answer };
  }
  async function deliver({ team, handle }: Delivery, count = 1): Promise<string> {
    await emitSome(team, count);
    // The relay commits first and starts then.
    await eventually(() => handle.describe(), { what: "the workflow" });
    return handle.workflowId;
  }
  /** Of deliveries that failed once and wait; the endpoint works by now. */
  async function waiting(count = 1): Promise<Delivery> {
    const to = await endpointThat(askToWait(TEN_MINUTES));
    await emitSome(to.team, count);
    await untilLog(to.team, to.endpoint.id, (log) => log.some((row) => row.status === "RETRYING"));
    await untilAtRest(temporal, to.endpoint.id);
    to.answer(status(204));
    return to;
  }
  /** Of one that cannot be sent until its secret is repaired. */
  async function held(): Promise<Delivery> {
    const to = await endpointThat(status(204), { encrypted_secret: "?" });
    await deliver(to);
    await untilDetails(to.handle, /failed three times/);
    return to;
  }
  async function after({ handle }: Delivery, ...updates: string[]): Promise<string> {
    for (const update of updates) await handle.executeUpdate(update);
    return handle.workflowId;
  }

  return {
    "delivery-delivered": async () => deliver(await endpointThat(status(204)), 3),

    "delivery-retried-then-delivered": async () => {
      let times = 0;
      return deliver(await endpointThat((...args) => status(++times < 3 ? 500 : 204)(...args)));
    },

    "delivery-exhausted": async () => deliver(await endpointThat(status(500))),

    "delivery-blocked": async () => deliver(await endpointThat(status(204), { url: "http://127.0.0.1:9/" })),

    "delivery-endpoint-off": async () => {
      const to = await waiting();
      await setEndpoint(to.team, to.endpoint.id, { active: false, disabled_reason: "manual" });
      return after(to, "retryNow");
    },

    // One of its deliveries probes it, the others follow.
    "delivery-endpoint-failing": async () => after(await waiting(FAILING_AFTER), "retryNow"),

    "delivery-step-failing-then-retried": async () => {
      const to = await held();
      await repairSecret(to.team, to.endpoint);
      return after(to, "retryNow");
    },

    "delivery-step-failing-then-cancelled": async () => after(await held(), "cancelWaiting"),

    "delivery-retry-now": async () => after(await waiting(), "retryNow"),

    "delivery-woken-by-another": async () => {
      const to = await waiting();
      await emitSome(to.team, 1);
      await untilLog(to.team, to.endpoint.id, (log) => log.some((row) => row.status === "SUCCEEDED"));
      return after(to, "retryNow");
    },

    "delivery-paused-then-resumed": async () => {
      const to = await waiting();
      await to.handle.executeUpdate("pause");
      await untilDetails(to.handle, /PAUSED/);
      return after(to, "resume", "retryNow");
    },

    "delivery-cancelled": async () => after(await waiting(), "cancelWaiting"),

    "delivery-cancelled-in-the-ui": async () => {
      const { handle } = await waiting();
      await handle.cancel();
      return handle.workflowId;
    },

    "delivery-continued-as-new": async () => {
      const to = await waiting();
      to.answer(askToWait(TEN_MINUTES));
      const { runId } = await to.handle.describe();
      await eventually(
        async () => {
          await to.handle.executeUpdate("retryNow");
          return (await to.handle.describe()).runId !== runId;
        },
        { what: "a second run" },
      );
      to.answer(status(204));
      return after(to, "retryNow");
    },
  };
}
