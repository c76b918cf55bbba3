import {
  type Client,
  ScheduleAlreadyRunning,
  type ScheduleOptions,
  ScheduleOverlapPolicy,
  type ScheduleUpdateOptions,
} from "@temporalio/client";
import { sendDueConfirmations } from "../activities/confirmations.ts";
import type { ActivityDeps } from "../activities/deps.ts";
import { sendDueNotices } from "../activities/webhooks/notices.ts";
import { STATEMENT_SECONDS } from "../db/pool.ts";
import { foldChanges } from "../domain/analytics/fold.ts";
import { refreshDueStatuses } from "../domain/audience/email-status.ts";
import { ACCOUNT_CHECKS_ID, RECONCILER_ID, RETENTION_ID, TASK_QUEUES } from "../workflows/ids.ts";
import { pause } from "./pause.ts";

/** How often what falls due is looked for. */
const LOOK_EVERY_MS = 1_000;
const SCHEDULE_EVERY_MS = 60_000;
/** How often the reconciler looks: the longest that a send stays without its workflow. */
const RECONCILE_EVERY_MS = 60_000;
/** How often accounts whose check is due are looked for. */
const ACCOUNT_CHECKS_EVERY_MS = 60_000;
/** How often rows whose time has passed are looked for. */
const RETENTION_EVERY_MS = 60_000;
/** How long a loop may go without a pass that succeeds: its longest statement, and a minute. */
const PASS_LIMIT_MS = (STATEMENT_SECONDS.maintenance + 60) * 1_000;
/** Addresses of contacts that one transaction looks at. */
const EMAIL_STATUSES = 1_000;
/** Changes of figures that one statement adds to those of their days. */
const ANALYTICS_CHANGES = 10_000;
/** Sets the status of contacts whose addresses bounced or are mailed again. */
async function refreshEmailStatuses({ orm, stopping }: Pick<ActivityDeps, "orm" | "stopping">): Promise<void> {
  const em = orm.em.fork();
  while (!stopping.aborted && (await refreshDueStatuses(em, EMAIL_STATUSES)) === EMAIL_STATUSES);
}

/** Adds the changes of figures to those of their days. */
async function foldAnalytics({ orm, stopping }: Pick<ActivityDeps, "orm" | "stopping">): Promise<void> {
  const em = orm.em.fork();
  while (!stopping.aborted && (await foldChanges(em, ANALYTICS_CHANGES)) === ANALYTICS_CHANGES);
}

/** Schedules that this pool keeps: the ID of each is also that of the workflow that it runs. */
const SCHEDULES = {
  [RECONCILER_ID]: { workflowType: "reconcileWorkflow", everyMs: RECONCILE_EVERY_MS },
  [ACCOUNT_CHECKS_ID]: { workflowType: "checkAccountsWorkflow", everyMs: ACCOUNT_CHECKS_EVERY_MS },
  [RETENTION_ID]: { workflowType: "retentionWorkflow", everyMs: RETENTION_EVERY_MS },
} as const;

/**
 * Creates a schedule, or updates the one that exists: it may have been deleted with Temporal's database, or made by an older
 * version.
 */
export async function ensureSchedule({ schedule }: Client, scheduleId: keyof typeof SCHEDULES): Promise<void> {
  const { workflowType, everyMs } = SCHEDULES[scheduleId];
  const spec: Pick<ScheduleOptions, "spec" | "action" | "policies"> = {
    spec: { intervals: [{ every: everyMs }] },
    action: {
      type: "startWorkflow",
      workflowType,
      workflowId: scheduleId,
      taskQueue: TASK_QUEUES.sends,
      args: [],
      workflowRunTimeout: "30 minutes",
    },
    policies: { overlap: ScheduleOverlapPolicy.SKIP, catchupWindow: everyMs },
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
 * The maintenance pool: sends opt-in mails and notices when they fall due, sets the status of contacts that bounced, adds up
 * analytics, and keeps the schedules of the reconciler, of account checks and of retention. Any number of these workers may run.
 */
export function startMaintenance(deps: ActivityDeps): { connected(client: Client): void; close(): Promise<void> } {
  const loops = [
    repeat(deps, "confirmations", LOOK_EVERY_MS, () => sendDueConfirmations(deps)),
    repeat(deps, "email statuses", LOOK_EVERY_MS, () => refreshEmailStatuses(deps)),
    repeat(deps, "analytics", LOOK_EVERY_MS, () => foldAnalytics(deps)),
    repeat(deps, "notices", LOOK_EVERY_MS, () => sendDueNotices(deps)),
  ];
  return {
    connected: (client) => {
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
