import {
  type Client,
  ScheduleAlreadyRunning,
  type ScheduleOptions,
  ScheduleOverlapPolicy,
  type ScheduleUpdateOptions,
} from "@temporalio/client";
import { sql } from "kysely";
import { sendDueConfirmations } from "../activities/confirmations.ts";
import type { ActivityDeps } from "../activities/deps.ts";
import { sendDueNotices } from "../activities/webhooks/notices.ts";
import { kysely } from "../db/orm.ts";
import { STATEMENT_SECONDS } from "../db/pool.ts";
import { foldChanges } from "../domain/analytics/fold.ts";
import { refreshDueStatuses } from "../domain/audience/email-status.ts";
import { BATCHES_KEPT } from "../domain/tracking/record.ts";
import { deletePresumedDeadListeners } from "../domain/webhooks/listener.ts";
import { deleteExpiredDeliveries } from "../domain/webhooks/retention.ts";
import { ACCOUNT_CHECKS_ID, RECONCILER_ID, TASK_QUEUES } from "../workflows/ids.ts";
import { pause } from "./pause.ts";

const CONFIRMATIONS_EVERY_MS = 1_000;
const EMAIL_STATUSES_EVERY_MS = 1_000;
const ANALYTICS_EVERY_MS = 1_000;
const NOTICES_EVERY_MS = 5_000;
const CLEAN_UP_EVERY_MS = 60_000;
const SCHEDULE_EVERY_MS = 60_000;
/** How often the reconciler looks: the longest that a send stays without its workflow. */
const RECONCILE_EVERY_MS = 60_000;
/** How often accounts whose check is due are looked for. */
const ACCOUNT_CHECKS_EVERY_MS = 60_000;
/** How long a loop may go without a pass that succeeds: its longest statement, and a minute. */
const PASS_LIMIT_MS = (STATEMENT_SECONDS.maintenance + 60) * 1_000;
/** Addresses of contacts that one transaction looks at. */
const EMAIL_STATUSES = 1_000;
/** Changes of figures that one statement adds to those of their days. */
const ANALYTICS_CHANGES = 10_000;
/** Rows one clean-up statement deletes at most: a long delete holds locks that other statements wait for. */
const CLEAN_UP_ROWS = 10_000;

/**
 * Deletes expired rows: remembered answers, previews that were never used, confirmation mails that count no more, past
 * names of recorded hits, leases, refusals, usage windows and request counts, revocations of OAuth tokens that have expired, old webhook
 * deliveries, listeners whose command has ended.
 */
export async function cleanUp({ orm, stopping }: Pick<ActivityDeps, "orm" | "stopping">): Promise<void> {
  const em = orm.em.fork();
  const db = kysely(em);
  for (const statement of [
    sql`delete from idempotency_records where ctid = any(array(
      select ctid from idempotency_records where expires_at < now() limit ${CLEAN_UP_ROWS}))`,
    sql`delete from send_previews where ctid = any(array(
      select ctid from send_previews where used_at is null and expires_at < now() - interval '2 days' limit ${CLEAN_UP_ROWS}))`,
    sql`delete from confirmation_mails where ctid = any(array(
      select ctid from confirmation_mails where day < (now() - interval '9 days')::date limit ${CLEAN_UP_ROWS}))`,
    // A verifier's clock may be behind that of the database.
    sql`delete from revoked_tokens where expires_at < now() - interval '1 day'`,
    sql`delete from account_leases where expires_at < now() - interval '1 hour'`,
    // An account that failed for long is checked once a day or so.
    sql`delete from account_refusals where retry_at < now() - interval '3 days'`,
    sql`delete from account_usage where starts_at < now() - interval '7 days'`,
    // A window is a minute long.
    sql`delete from request_counts where starts_at < now() - interval '2 minutes'`,
    sql`delete from hit_batches where updated_at < now() - ${BATCHES_KEPT}`,
    sql`delete from daily_send_usage where day < (now() - interval '60 days')::date`,
  ]) {
    await statement.execute(db);
  }
  await deletePresumedDeadListeners(em);
  await deleteExpiredDeliveries(em, CLEAN_UP_ROWS, stopping);
}

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
 * analytics, deletes expired rows, and keeps the schedules of the reconciler and of account checks. Any number of these workers may run.
 */
export function startMaintenance(deps: ActivityDeps): { connected(client: Client): void; close(): Promise<void> } {
  const loops = [
    repeat(deps, "confirmations", CONFIRMATIONS_EVERY_MS, () => sendDueConfirmations(deps)),
    repeat(deps, "email statuses", EMAIL_STATUSES_EVERY_MS, () => refreshEmailStatuses(deps)),
    repeat(deps, "analytics", ANALYTICS_EVERY_MS, () => foldAnalytics(deps)),
    repeat(deps, "notices", NOTICES_EVERY_MS, () => sendDueNotices(deps)),
    repeat(deps, "clean-up", CLEAN_UP_EVERY_MS, () => cleanUp(deps)),
  ];
  return {
    connected: (client) => {
      for (const id of [RECONCILER_ID, ACCOUNT_CHECKS_ID] as const) {
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
