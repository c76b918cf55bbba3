import {
  type Client,
  ScheduleAlreadyRunning,
  type ScheduleOptions,
  ScheduleOverlapPolicy,
  type ScheduleUpdateOptions,
} from "@temporalio/client";
import { sendDueConfirmations } from "../activities/confirmations.ts";
import type { ActivityDeps } from "../activities/deps.ts";
import { sendDueInvites, sendDueSignInLinks } from "../activities/member-mails.ts";
import { wakeSequences } from "../activities/reconcile.ts";
import { sendDueNotices } from "../activities/webhooks/notices.ts";
import type { EntityManager } from "../db/orm.ts";
import { STATEMENT_SECONDS } from "../db/pool.ts";
import { foldChanges } from "../domain/analytics/fold.ts";
import { refreshDueStatuses } from "../domain/audience/email-status.ts";
import { deleteUnusedFiles } from "../domain/images/images.ts";
import { settleHits } from "../domain/tracking/settle.ts";
import { openImageStore } from "../lib/file-store.ts";
import { ACCOUNT_CHECKS_ID, RECONCILER_ID, RETENTION_ID, TASK_QUEUES } from "../temporal/ids.ts";
import { pause } from "./pause.ts";

/** How often what falls due is looked for. */
const LOOK_EVERY_MS = 1_000;
/** How often schedules are checked, and how often each runs: the longest that a send stays without its workflow. */
const SCHEDULE_EVERY_MS = 60_000;
/** How long a loop may go without a pass that succeeds: its longest statement, and a minute. */
const PASS_LIMIT_MS = (STATEMENT_SECONDS.maintenance + 60) * 1_000;
/** Addresses of contacts that one transaction looks at. */
const EMAIL_STATUSES = 1_000;
/** Changes of figures that one statement adds to those of their days. */
const ANALYTICS_CHANGES = 10_000;
/** Opens and clicks that one transaction settles. */
const HITS = 5_000;
/** Files of deleted images that are deleted in one pass. */
const IMAGE_FILES = 20;

/** Works batch after batch, while they are full. */
async function drain(
  { orm, stopping }: ActivityDeps,
  batch: (em: EntityManager, limit: number) => Promise<number>,
  limit: number,
): Promise<void> {
  const em = orm.em.fork();
  while (!stopping.aborted && (await batch(em, limit)) >= limit);
}

/** Schedules that this pool keeps: the ID of each is also that of the workflow that it runs. */
const SCHEDULES = {
  [RECONCILER_ID]: "reconcileWorkflow",
  [ACCOUNT_CHECKS_ID]: "checkAccountsWorkflow",
  [RETENTION_ID]: "retentionWorkflow",
} as const;

/** Creates a schedule, or updates that of an older version: it may have been deleted with Temporal's database. */
export async function ensureSchedule({ schedule }: Client, scheduleId: keyof typeof SCHEDULES): Promise<void> {
  const spec: Pick<ScheduleOptions, "spec" | "action" | "policies"> = {
    spec: { intervals: [{ every: SCHEDULE_EVERY_MS }] },
    action: {
      type: "startWorkflow",
      workflowType: SCHEDULES[scheduleId],
      workflowId: scheduleId,
      taskQueue: TASK_QUEUES.sends,
      args: [],
      workflowRunTimeout: "30 minutes",
    },
    policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: SCHEDULE_EVERY_MS },
  };
  try {
    await schedule.create({ scheduleId, ...spec, state: { triggerImmediately: true } });
  } catch (error) {
    if (!(error instanceof ScheduleAlreadyRunning)) throw error;
    // The state stays: a schedule that an operator paused remains paused.
    await schedule.getHandle(scheduleId).update(({ state }) => ({ ...spec, state }) as ScheduleUpdateOptions);
  }
}

/**
 * The maintenance pool: sends opt-in mails, notices and the mails of members when they fall due, sets the status of contacts that bounced,
 * settles opens and clicks, adds up analytics, deletes files of deleted images, and keeps the schedules of the reconciler, of account checks and of retention. Any number of these workers may run.
 */
export function startMaintenance(deps: ActivityDeps): { connected(client: Client): void; close(): Promise<void> } {
  const images = openImageStore(deps.env);
  const loops = [
    repeat(deps, "confirmations", LOOK_EVERY_MS, () => sendDueConfirmations(deps)),
    repeat(deps, "email statuses", LOOK_EVERY_MS, () => drain(deps, refreshDueStatuses, EMAIL_STATUSES)),
    repeat(deps, "opens and clicks", LOOK_EVERY_MS, () => drain(deps, settleHits, HITS)),
    repeat(deps, "analytics", LOOK_EVERY_MS, () => drain(deps, foldChanges, ANALYTICS_CHANGES)),
    repeat(deps, "notices", LOOK_EVERY_MS, () => sendDueNotices(deps)),
    repeat(deps, "sign-in links", LOOK_EVERY_MS, () => sendDueSignInLinks(deps)),
    repeat(deps, "invites", LOOK_EVERY_MS, () => sendDueInvites(deps)),
    repeat(deps, "files of images", LOOK_EVERY_MS, async () => {
      if (images) await drain(deps, (em, limit) => deleteUnusedFiles(em, images, limit), IMAGE_FILES);
    }),
  ];
  return {
    connected: (client) => {
      loops.push(repeat(deps, "sequence wakes", LOOK_EVERY_MS, () => wakeSequences(deps, client)));
      for (const id of [RECONCILER_ID, ACCOUNT_CHECKS_ID, RETENTION_ID] as const) {
        loops.push(repeat(deps, `schedule ${id}`, SCHEDULE_EVERY_MS, () => ensureSchedule(client, id)));
      }
    },
    close: async () => {
      await Promise.all(loops);
    },
  };
}

async function repeat(
  { log, stopping, progress }: ActivityDeps,
  task: string,
  everyMs: number,
  work: () => Promise<unknown>,
): Promise<void> {
  const watched = progress.watch(task, everyMs + PASS_LIMIT_MS);
  while (!stopping.aborted) {
    try {
      await work();
      watched.moved();
    } catch (error) {
      log.error({ task, err: error }, "maintenance failed; tried again later");
    }
    await pause(everyMs, stopping);
  }
}
