import { Context } from "@temporalio/activity";
import { noteMembers } from "../domain/sequences/enrolments.ts";
import { mailDueNow, type ResumeDue, resumeSequence, stopSequence } from "../domain/sequences/sequences.ts";
import { pauseSequence } from "../domain/sequences/state.ts";
import { advanceWaves, claimWave, readRest } from "../domain/sequences/waves.ts";
import type { ActivityDeps } from "./deps.ts";
import { whileBeating } from "./heartbeat.ts";
import { startSend } from "./starts.ts";

export type SequenceCommand = "pause" | "resume" | "stop" | "mailDueNow";
export type SequenceActivities = ReturnType<typeof createSequenceActivities>;
export type SequenceMemberActivities = ReturnType<typeof createSequenceMemberActivities>;
export type SequenceRun = Awaited<ReturnType<SequenceActivities["runSequence"]>>;

/** How soon a wave is looked at again: a tenth of its age, between these. */
const SOONEST_LOOK_MS = 1_000;
const LATEST_LOOK_MS = 30_000;

export const createSequenceActivities = ({ orm, log }: ActivityDeps) => ({
  /**
   * Lets people go on, and claims and starts the next wave. @param input `wave`: the last one that the workflow knows of
   * @returns `nextInMs`: until the next run; null when only a wake-up lets something happen
   */
  runSequence: ({ campaignId, wave }: { campaignId: string; wave: number }) =>
    whileBeating(async () => {
      const em = orm.em.fork();
      await advanceWaves(em, campaignId);
      const claimed = await claimWave(em, campaignId, wave);
      const { unstarted, openWaves, claimedMs, nextInMs, ...shown } = await readRest(em, campaignId);
      for (const send of unstarted) await startSend(Context.current().client, send);
      if (claimed.sendId) log.info({ campaignId, sendId: claimed.sendId }, "a sequence has claimed a wave");
      const lookMs = Math.min(Math.max((claimedMs ?? 0) / 10, SOONEST_LOOK_MS), LATEST_LOOK_MS);
      const hasWaves = openWaves.length > 0;
      // Only DEFERRED people are left in its waves.
      const isFree = hasWaves && !claimed.isBusy && !claimed.sendId;
      const waits = [
        ...(hasWaves ? [isFree ? LATEST_LOOK_MS : lookMs] : []),
        ...(nextInMs !== null && (isFree || !hasWaves) ? [Math.max(nextInMs, claimed.capMs ?? 0)] : []),
      ];
      const { status, reason, wave: lastWave, isBlocked, areMembersNoted, waiting, sentToday, nextAt } = shown;
      return {
        ...{ status, reason, wave: lastWave, isBlocked, areMembersNoted, waiting, sentToday, nextAt, hasWaves },
        nextInMs: waits.length > 0 ? Math.min(...waits) : null,
      };
    }),

  /** Carries out a command of operators. @returns the answer to it */
  async commandSequence(campaignId: string, command: SequenceCommand, due?: ResumeDue): Promise<string> {
    const em = orm.em.fork();
    switch (command) {
      case "pause":
        await pauseSequence(em, campaignId, null);
        return "PAUSED: nothing more is claimed; a wave under way ends by itself";
      case "resume":
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

export const createSequenceMemberActivities = ({ orm, vault }: ActivityDeps) => ({
  /** Notes those who were members when the sequence was started. */
  noteMembers: (campaignId: string) => whileBeating(() => noteMembers(orm.em.fork(), vault, campaignId)),
});
