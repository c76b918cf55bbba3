import { Context } from "@temporalio/activity";
import { ApiError } from "../domain/errors.ts";
import { PAUSE_REASONS } from "../domain/sends/pause-reasons.ts";
import { noteMembers } from "../domain/sequences/enrolments.ts";
import { readProgress } from "../domain/sequences/progress.ts";
import { mailDueNow, resumeSequence, stopSequence } from "../domain/sequences/sequences.ts";
import { pauseSequence, readSequence } from "../domain/sequences/state.ts";
import { advanceWaves, claimWave } from "../domain/sequences/waves.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { LOOK_AGAIN_MS, placesForLongWork } from "./long-work.ts";
import { startSend } from "./starts.ts";

export type SequenceCommand = "pause" | "resume" | "stop" | "mailDueNow";
export type SequenceActivities = ReturnType<typeof createSequenceActivities>;
export type SequenceRun = Awaited<ReturnType<SequenceActivities["runSequence"]>>;

/** How soon a wave is looked at again: a tenth of its age, between these. */
const SOONEST_LOOK_MS = 1_000;
const LATEST_LOOK_MS = 30_000;

/** A team that starts many sequences at once notes their members one after another: each is work for Postgres alone. */
const runInPlace = placesForLongWork();

export const createSequenceActivities = ({ orm, vault, log }: ActivityDeps) => ({
  /**
   * Notes the members of the start, lets people go on, and claims and starts the next wave. When the process dies in between, the
   * reconciler starts its send.
   * @param input `wave`: the last one that the workflow knows of
   * @returns `nextInMs`: until the next run; null when only a wake-up lets something happen
   */
  runSequence: ({ campaignId, wave }: { campaignId: string; wave: number }) =>
    whileBeating(async () => {
      const em = orm.em.fork();
      const { teamId, areMembersNoted } = await readSequence(em, campaignId);
      const note = () => noteMembers(em, vault, campaignId).then(() => true);
      const areNoted = areMembersNoted || (await runInPlace(teamId, note, () => false));
      await advanceWaves(em, campaignId);
      const { sendId, isBusy, isBlocked = false, capMs = 0 } = await claimWave(em, campaignId, wave);
      const progress = await readProgress(em, campaignId);
      const { environment, status, reason, waiting, mailedToday, nextDueAt } = progress;
      if (sendId) {
        const send = { id: sendId, teamId, environment, type: "campaign", resourceId: campaignId } as const;
        await startSend(Context.current().client, send);
        log.info({ campaignId, sendId }, "a sequence has claimed a wave");
      }
      const hasWaves = progress.openWaves.length > 0;
      const lookMs = Math.min(Math.max((progress.claimedMs ?? 0) / 10, SOONEST_LOOK_MS), LATEST_LOOK_MS);
      // Beside a wave that holds only DEFERRED people the next one may begin.
      const dueMs = sendId || isBusy || progress.nextInMs === null ? null : Math.max(progress.nextInMs, capMs);
      const nextInMs = !areNoted ? LOOK_AGAIN_MS : hasWaves ? Math.min(lookMs, dueMs ?? lookMs) : dueMs;
      return { status, reason, wave: progress.wave, isBlocked, waiting, mailedToday, nextDueAt, hasWaves, nextInMs };
    }),

  /** @param code of the failures for which its runs cannot claim a wave */
  async pauseFailing(campaignId: string, code: string): Promise<void> {
    const em = orm.em.fork();
    if ((await readSequence(em, campaignId)).status !== "ACTIVE") return;
    await pauseSequence(em, campaignId, PAUSE_REASONS.claimFailed);
    log.error({ campaignId, code }, "a sequence was paused: its runs had failed for an hour");
  },

  /** Carries out a command of operators. @param due of a resume: `mail` or `skip` @returns the answer to it */
  async commandSequence(campaignId: string, command: SequenceCommand, due?: unknown): Promise<string> {
    const em = orm.em.fork();
    switch (command) {
      case "pause":
        await pauseSequence(em, campaignId, null);
        return "PAUSED: nothing more is claimed; a wave under way ends by itself";
      case "resume":
        if (due !== undefined && due !== "mail" && due !== "skip") {
          throw new ApiError("validation_failed", 'The input of resume is "mail" or "skip".');
        }
        await resumeSequence(em, campaignId, { due });
        return "ACTIVE";
      case "stop":
        await stopSequence(em, campaignId);
        return "STOPPED: a wave under way ends by itself";
      case "mailDueNow":
        return `${await mailDueNow(em, campaignId)} of those who wait since the resume are mailed now`;
    }
  },
});
