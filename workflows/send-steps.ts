import { type ActivityOptions, proxyActivities, proxyLocalActivities } from "@temporalio/workflow";
import type { SendActivities } from "../activities/sends.ts";
import { TASK_QUEUES } from "../temporal/ids.ts";
import { HEARTBEAT_TIMEOUT } from "./heartbeat.ts";
import { STEP_RETRY } from "./steps.ts";

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
