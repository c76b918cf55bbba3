import { sql } from "kysely";
import { sendDueConfirmations } from "../activities/confirmations.ts";
import type { ActivityDeps } from "../activities/deps.ts";
import { kysely } from "../db/orm.ts";

const CONFIRMATIONS_EVERY_MS = 1_000;
const CLEAN_UP_EVERY_MS = 60_000;
/** Rows one clean-up statement deletes at most: a long delete would hold up others. */
const CLEAN_UP_ROWS = 10_000;

/** Deletes what has had its time: remembered answers, previews that were never used, leases and windows of the past. */
export async function cleanUp({ orm }: Pick<ActivityDeps, "orm">): Promise<void> {
  const db = kysely(orm.em.fork());
  for (const statement of [
    sql`delete from idempotency_records where ctid = any(array(
      select ctid from idempotency_records where expires_at < now() limit ${CLEAN_UP_ROWS}))`,
    sql`delete from send_previews where ctid = any(array(
      select ctid from send_previews where used_at is null and expires_at < now() - interval '2 days' limit ${CLEAN_UP_ROWS}))`,
    sql`delete from account_leases where expires_at < now() - interval '1 hour'`,
    sql`delete from account_usage where starts_at < now() - interval '7 days'`,
    sql`delete from daily_send_usage where day < (now() - interval '60 days')::date`,
  ]) {
    await statement.execute(db);
  }
}

/** The pool that keeps house: opt-in mails as they fall due, and the clean-up. Any number of them may run. */
export function startMaintenance(deps: ActivityDeps): { close(): Promise<void> } {
  const loops = [
    repeat(deps, "confirmations", CONFIRMATIONS_EVERY_MS, () => sendDueConfirmations(deps)),
    repeat(deps, "clean-up", CLEAN_UP_EVERY_MS, () => cleanUp(deps)),
  ];
  return {
    close: async () => {
      await Promise.all(loops);
    },
  };
}

async function repeat(
  { log, stopping }: ActivityDeps,
  task: string,
  everyMs: number,
  work: () => Promise<unknown>,
): Promise<void> {
  while (!stopping.aborted) {
    try {
      await work();
    } catch (error) {
      log.error({ task, err: error }, "maintenance failed; tried again later");
    }
    await new Promise<void>((resolve) => {
      const timer = setTimeout(done, everyMs);
      stopping.addEventListener("abort", done, { once: true });
      function done() {
        clearTimeout(timer);
        stopping.removeEventListener("abort", done);
        resolve();
      }
    });
  }
}
