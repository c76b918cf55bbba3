import { closeLost } from "../domain/sends/ledger/lanes.ts";
import {
  beginSend,
  type ChangedSend,
  cancelSend,
  closeReview,
  finishSend,
  pauseSend,
  readSend,
  resumeSend,
} from "../domain/sends/ledger/lifecycle.ts";
import { requeueUnknown } from "../domain/sends/ledger/unknown.ts";
import { type ConfirmRequest, confirmSend } from "../domain/sends/plan/confirm.ts";
import { PlanTooSlow, type PreviewRequest, voidPreview, writePreview } from "../domain/sends/plan/preview.ts";
import { logMove } from "../domain/sends/send-log.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { placesForLongWork, tryAgain } from "./long-work.ts";

/** So long the recipients may be counted in the workflow's task, which saves a round trip. */
const QUICK_PLAN_MS = 2_000;

/** To copy so many keeps a connection, and a core of Postgres, busy for seconds: their confirm takes a place. */
const LARGE_PLAN_RECIPIENTS = 50_000;

export type SendActivities = ReturnType<typeof createSendActivities>;

/** Each may run twice, and has its effect once. */
export function createSendActivities({ orm, env, countMails, log }: ActivityDeps) {
  const em = () => orm.em.fork();
  const planLimitMs = env.PLAN_SECONDS * 1_000;
  const runInPlace = placesForLongWork();
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
    /** `slow`: `writeLongPreview` must write it. `large`: `confirmLargeSend` must confirm it. */
    writePreview: async (request: PreviewRequest): Promise<"written" | "large" | "slow"> => {
      try {
        const recipients = await writePreview(em(), request, Math.min(QUICK_PLAN_MS, planLimitMs));
        return recipients < LARGE_PLAN_RECIPIENTS ? "written" : "large";
      } catch (error) {
        if (error instanceof PlanTooSlow) return "slow";
        throw error;
      }
    },
    writeLongPreview: (request: PreviewRequest) =>
      whileBeating(async () => {
        await runInPlace(request.teamId, () => writePreview(em(), request, planLimitMs), tryAgain);
      }),
    confirmSend: (request: ConfirmRequest) => whileBeating(() => confirm(request)),
    /** In one of the places for long plans. */
    confirmLargeSend: (request: ConfirmRequest) =>
      whileBeating(() => runInPlace(request.teamId, () => confirm(request), tryAgain)),
    voidPreview: (previewId: string) => voidPreview(em(), previewId),
    readSend: (sendId: string) => readSend(em(), sendId),
    beginSend: (sendId: string) => logged(sendId, beginSend(em(), sendId)),
    pauseSend: (sendId: string, pauseReason?: string) => logged(sendId, pauseSend(em(), sendId, pauseReason)),
    resumeSend: (sendId: string, areGone?: boolean, resumes?: number) =>
      logged(sendId, resumeSend(em(), sendId, areGone, resumes)),
    cancelSend: (sendId: string) => logged(sendId, cancelSend(em(), sendId)),
    closeLost: (sendId: string) => whileBeating(() => close(sendId)),
    requeueUnknown: (sendId: string) => whileBeating(() => requeueUnknown(em(), sendId)),
    finishSend: (sendId: string) =>
      whileBeating(async () => {
        await close(sendId);
        const { cancelled, lost, from, ...settled } = await finishSend(em(), sendId);
        if (from) logMove(log, { sendId, from, status: settled.status });
        countMails({ CANCELLED: cancelled, UNKNOWN: lost });
        return settled;
      }),
    closeReview: (sendId: string) => closeReview(em(), sendId),
  };
}
