import { type ConfirmRequest, confirmSend } from "../domain/sends/confirm.ts";
import { closeLost } from "../domain/sends/lanes.ts";
import {
  beginSend,
  type ChangedSend,
  cancelSend,
  finishSend,
  pauseSend,
  readSend,
  resumeSend,
  type SendState,
  type SettledSend,
} from "../domain/sends/lifecycle.ts";
import { PlanTooSlow, type PreviewRequest, voidPreview, writePreview } from "../domain/sends/preview.ts";
import { closeReview } from "../domain/sends/review.ts";
import { logMove } from "../domain/sends/send-log.ts";
import { requeueUnknown, type UnknownRequeued } from "../domain/sends/unknown.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { LongPlans } from "./long-plans.ts";

/** So long the recipients may be counted in the workflow's task, which saves a round trip. */
const QUICK_PLAN_MS = 2_000;

/** To copy so many keeps a connection, and a core of Postgres, busy for seconds: their confirm takes a place. */
const LARGE_PLAN_RECIPIENTS = 50_000;

/** Each may run twice, and has its effect once. */
export interface SendActivities {
  /** `slow`: `writeLongPreview` must write it. `large`: `confirmLargeSend` must confirm it. */
  writePreview(request: PreviewRequest): Promise<"written" | "large" | "slow">;
  writeLongPreview(request: PreviewRequest): Promise<void>;
  confirmSend(request: ConfirmRequest): Promise<void>;
  /** In one of the places for long plans. */
  confirmLargeSend(request: ConfirmRequest): Promise<void>;
  voidPreview(previewId: string): Promise<boolean>;
  readSend(sendId: string): Promise<SendState | undefined>;
  beginSend(sendId: string): Promise<ChangedSend>;
  pauseSend(sendId: string, pauseReason?: string): Promise<ChangedSend>;
  /** @param resumeId of the operator's command: its repetition changes nothing */
  resumeSend(sendId: string, resumeId: string): Promise<ChangedSend>;
  cancelSend(sendId: string): Promise<ChangedSend>;
  closeLost(sendId: string): Promise<void>;
  requeueUnknown(sendId: string): Promise<UnknownRequeued>;
  finishSend(sendId: string): Promise<Omit<SettledSend, "cancelled" | "lost" | "from">>;
  closeReview(sendId: string): Promise<void>;
}

export function createSendActivities(
  { orm, env, countMails, log }: ActivityDeps,
  largePlanRecipients = LARGE_PLAN_RECIPIENTS,
): SendActivities {
  const em = () => orm.em.fork();
  const planLimitMs = env.PLAN_SECONDS * 1_000;
  const longPlans = new LongPlans();
  /** Logs a change, and leaves the part for the log out of the workflow's history. */
  const logged = async (sendId: string, change: Promise<ChangedSend>): Promise<ChangedSend> => {
    const { from, ...changed } = await change;
    const { state } = changed;
    if (from && state) logMove(log, { sendId, from, status: state.status, reason: state.pauseReason });
    return changed;
  };
  const confirm = async (request: ConfirmRequest) => {
    await confirmSend(em(), request, planLimitMs);
    logMove(log, { sendId: request.previewId, teamId: request.teamId, status: "SCHEDULED" });
  };
  const close = async (sendId: string) => countMails({ UNKNOWN: await closeLost(em(), sendId) });
  return {
    writePreview: async (request) => {
      try {
        const recipients = await writePreview(em(), request, Math.min(QUICK_PLAN_MS, planLimitMs));
        return recipients < largePlanRecipients ? "written" : "large";
      } catch (error) {
        if (error instanceof PlanTooSlow) return "slow";
        throw error;
      }
    },
    writeLongPreview: (request) =>
      whileBeating(() =>
        longPlans.run(request.teamId, async () => void (await writePreview(em(), request, planLimitMs))),
      ),
    confirmSend: (request) => whileBeating(() => confirm(request)),
    confirmLargeSend: (request) => whileBeating(() => longPlans.run(request.teamId, () => confirm(request))),
    voidPreview: (previewId) => voidPreview(em(), previewId),
    readSend: (sendId) => readSend(em(), sendId),
    beginSend: (sendId) => logged(sendId, beginSend(em(), sendId)),
    pauseSend: (sendId, pauseReason) => logged(sendId, pauseSend(em(), sendId, pauseReason ?? null)),
    resumeSend: (sendId, resumeId) => logged(sendId, resumeSend(em(), sendId, resumeId)),
    cancelSend: (sendId) => logged(sendId, cancelSend(em(), sendId)),
    closeLost: (sendId) => whileBeating(() => close(sendId)),
    requeueUnknown: (sendId) => whileBeating(() => requeueUnknown(em(), sendId)),
    finishSend: (sendId) =>
      whileBeating(async () => {
        await close(sendId);
        const { cancelled, lost, from, ...settled } = await finishSend(em(), sendId);
        if (from) logMove(log, { sendId, from, status: settled.status });
        countMails({ CANCELLED: cancelled, UNKNOWN: lost });
        return settled;
      }),
    closeReview: (sendId) => closeReview(em(), sendId),
  };
}
