import { continueAsNew, proxyActivities } from "@temporalio/workflow";
import type { Delivered, DeliveryActivities } from "../activities/webhooks/deliver-due.ts";
import type { EndpointCommand } from "../domain/webhooks/commands.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import type { EndpointInput } from "../temporal/starts.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { OperatorView } from "./operator-view.ts";
import { failingStep, STEP_RETRY } from "./steps.ts";
import { runWhenWoken } from "./wake-loop.ts";

/** Operators' updates, as the UI explains them. */
export const OPERATOR_UPDATES: readonly [EndpointCommand, string][] = [
  [
    "retryNow",
    "Attempt what waits for its next attempt now, and probe an endpoint that is failing. It uses up none of the attempts.",
  ],
  ["pause", "Hold the deliveries to this endpoint. Requests in flight end by themselves."],
  ["resume", "Send the held deliveries."],
  ["cancelWaiting", "Give up the deliveries that wait. They can be replayed later."],
];

/** A worker that is lost is noticed sooner than elsewhere: what it had in flight is sent again within seconds. */
const DELIVERY_HEARTBEAT_MS = 5_000;

/** A run ends by itself within half an hour. */
function deliveryStepsFor(teamId: string): Pick<DeliveryActivities, "deliverDue" | "commandEndpoint"> {
  const options = (summary: string) =>
    ({
      taskQueue: TASK_QUEUES.webhooks,
      startToCloseTimeout: "1 hour",
      heartbeatTimeout: Math.min(HEARTBEAT_TIMEOUT, DELIVERY_HEARTBEAT_MS),
      retry: STEP_RETRY,
      priority: { fairnessKey: teamId },
      summary,
    }) as const;
  return {
    deliverDue: proxyActivities<DeliveryActivities>(options("deliver what is due")).deliverDue,
    commandEndpoint: proxyActivities<DeliveryActivities>(options("carry out a command")).commandEndpoint,
  };
}

/**
 * Begins the runs of one endpoint, and sleeps between them, for as long as something waits for it. All state is in Postgres.
 * ID: webhook-endpoint/{endpoint}.
 */
export function webhookEndpointWorkflow(input: EndpointInput): Promise<void> {
  const { webhookId } = input;
  const steps = deliveryStepsFor(input.teamId);
  const ui = new OperatorView();
  /** Why the latest delivery failed, until one succeeds. */
  let reason: string | null = null;
  /** After the latest run, as operators read it. */
  let state = "Updates: retryNow, pause, cancelWaiting.";
  const show = (details: string, needsOperator?: boolean) =>
    ui.show({ details: `Endpoint ${webhookId}. ${details}`, ...(needsOperator !== undefined && { needsOperator }) });

  return runWhenWoken<EndpointCommand>({
    updates: OPERATOR_UPDATES,
    onCancel: "cancelWaiting",
    step: "deliver",
    waitSummary: "until the next delivery is due",
    command: (kind) => steps.commandEndpoint(webhookId, kind),
    run: async () => {
      show(`Delivering. ${state}`);
      const delivered = await steps.deliverDue(webhookId);
      if (delivered.reason !== undefined) reason = delivered.reason;
      state = restText(delivered.rest, reason);
      show(state, false);
      const { rest } = delivered;
      if (!rest || rest.waiting === 0) return undefined;
      if (rest.paused) return Number.POSITIVE_INFINITY;
      return rest.nextInMs ?? undefined;
    },
    onFailing: (failing) => show(failingStep(failing, "retryNow, cancelWaiting"), true),
    continueAsNew: () => continueAsNew<typeof webhookEndpointWorkflow>(input),
  });
}

function restText(rest: Delivered["rest"], reason: string | null): string {
  const error = reason === null ? "" : ` Last error: ${reason}.`;
  if (!rest) return "Deleted.";
  const { active, health, failures, paused, waiting, nextAt } = rest;
  if (!active) return `Off.${error}`;
  const state = `${health}, ${failures} failures in a row, ${waiting} waiting`;
  if (paused) return `PAUSED: ${state}.${error} Updates: resume, cancelWaiting.`;
  const next = nextAt === null ? "" : ` Next attempt at ${nextAt}.`;
  return `${state}.${next}${error} Updates: retryNow, pause, cancelWaiting.`;
}
