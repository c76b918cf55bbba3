import {
  ActivityCancellationType,
  type ActivityOptions,
  proxyActivities,
  proxyLocalActivities,
} from "@temporalio/workflow";
import type { DispatchActivities, SliceInput, SliceResult } from "../activities/dispatch.ts";
import type { SendActivities } from "../activities/sends.ts";
import type { SequenceActivities } from "../activities/sequences.ts";
import type { DeliveryActivities } from "../activities/webhooks/deliver-due.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { failureCodeOf, STEP_RETRY } from "./steps.ts";

const step = <K extends keyof SendActivities>(name: K, summary: string, options: ActivityOptions = {}) =>
  proxyActivities<SendActivities>({
    taskQueue: TASK_QUEUES.sends,
    startToCloseTimeout: "30 seconds",
    retry: STEP_RETRY,
    ...options,
    summary,
  })[name];

const LONG = { startToCloseTimeout: "5 minutes", heartbeatTimeout: HEARTBEAT_TIMEOUT } as const;

/** Twice as long as the longest PLAN_SECONDS, because a confirm counts and copies. */
const LONG_PLAN = {
  startToCloseTimeout: "1 hour",
  scheduleToCloseTimeout: "1 hour",
  heartbeatTimeout: HEARTBEAT_TIMEOUT,
} as const;

/** For a large plan that is tried until it has a place among those of its process. The API does not wait for its end. */
const IN_A_PLACE = {
  ...LONG_PLAN,
  // Commands of operators wait behind it, so it is tried soon after an outage.
  retry: { ...STEP_RETRY, maximumInterval: "5 seconds", maximumAttempts: Number.POSITIVE_INFINITY },
} as const;

export const sendSteps: SendActivities = {
  // A local activity saves the round trip that was most of a preview's time.
  writePreview: proxyLocalActivities<SendActivities>({
    scheduleToCloseTimeout: "30 seconds",
    retry: STEP_RETRY,
    summary: "resolve the plan",
  }).writePreview,
  writeLongPreview: step("writeLongPreview", "resolve a large plan", IN_A_PLACE),
  confirmSend: step("confirmSend", "arm the send", LONG_PLAN),
  confirmLargeSend: step("confirmLargeSend", "arm a large send", IN_A_PLACE),
  voidPreview: step("voidPreview", "void the token"),
  readSend: step("readSend", "read the send"),
  beginSend: step("beginSend", "begin"),
  pauseSend: step("pauseSend", "pause"),
  resumeSend: step("resumeSend", "resume"),
  cancelSend: step("cancelSend", "cancel"),
  closeLost: step("closeLost", "list what a lost worker had in flight", LONG),
  requeueUnknown: step("requeueUnknown", "queue the unknown again", LONG),
  finishSend: step("finishSend", "settle the credits", LONG_PLAN),
  closeReview: step("closeReview", "close the review of unknown outcomes"),
};

/** An activity that fails three times is a result: a failure that may pass by itself. */
export async function requestSlice(slice: SliceInput): Promise<SliceResult> {
  const { dispatchSlice } = proxyActivities<DispatchActivities>({
    taskQueue: TASK_QUEUES.dispatch,
    // Half a minute of mailing, and what the limits of SMTP allow to the last mails in flight.
    startToCloseTimeout: "1 hour",
    heartbeatTimeout: HEARTBEAT_TIMEOUT,
    retry: STEP_RETRY,
    // A live worker finishes the mails in flight.
    cancellationType: ActivityCancellationType.WAIT_CANCELLATION_COMPLETED,
    // Fairness acts between tasks only, which is why a slice gives way: one large team does not hold up the others.
    priority: { fairnessKey: slice.teamId },
    summary: "mail a slice",
  });
  try {
    return await dispatchSlice(slice);
  } catch (error) {
    return { next: "failure", reason: failureCodeOf(error), temporary: true, mailed: 0 };
  }
}

export const sequenceStepsFor = (teamId: string): SequenceActivities =>
  proxyActivities<SequenceActivities>({
    ...{ ...LONG_PLAN, taskQueue: TASK_QUEUES.maintenance, retry: STEP_RETRY },
    priority: { fairnessKey: teamId },
  });

/** A worker that is lost is noticed sooner than elsewhere: what it had in flight is sent again within seconds. */
const DELIVERY_HEARTBEAT_MS = 5_000;

/** A run ends by itself within half an hour. */
export function deliveryStepsFor(teamId: string): Pick<DeliveryActivities, "deliverDue" | "commandEndpoint"> {
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

export const { replayNext } = proxyActivities<DeliveryActivities>({
  taskQueue: TASK_QUEUES.webhooks,
  startToCloseTimeout: "60 seconds",
  retry: STEP_RETRY,
  summary: "queue a second's worth",
});
