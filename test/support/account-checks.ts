import { sql } from "kysely";
import { pino } from "pino";
import { type AccountsChecked, checkDueAccounts } from "../../activities/account-checks.ts";
import type { Env } from "../../config/env.ts";
import type { EntityManager } from "../../db/orm.ts";
import { kysely } from "../../db/orm.ts";
import { backdoor, unique } from "./factories.ts";
import { RECEIVER_HOSTS } from "./receiver.ts";
import { stack } from "./stack.ts";

/** Keeps the accounts of other tests from becoming due during a test that counts checks. */
export async function postponeChecks(): Promise<void> {
  const { orm } = await backdoor();
  await sql`update account_checks set next_at = clock_timestamp() + interval '1 day'`.execute(kysely(orm.em.fork()));
}

interface CheckOptions {
  settings?: Partial<Env>;
  /** Ends the run, as a worker that stops does. */
  stopping?: AbortSignal;
  workerId?: string;
}

/** Checks the accounts whose check is due, in this process, as a dispatch worker does. */
export async function runChecks({
  settings = {},
  stopping = new AbortController().signal,
  workerId = unique("worker"),
}: CheckOptions = {}): Promise<AccountsChecked> {
  const env = { ...(await stack()).env, WEBHOOK_ALLOWED_HOSTS: [...RECEIVER_HOSTS], ...settings };
  return checkDueAccounts({ ...(await backdoor()), env, workerId, stopping, log: pino({ enabled: false }) });
}

/** Makes the checks of these accounts due, in this order, and lets a refused one be tried at once. */
export async function makeDue(em: EntityManager, accountIds: readonly string[]): Promise<void> {
  for (const [i, id] of accountIds.entries()) {
    const before = `${accountIds.length - i} seconds`;
    await sql`update account_checks set next_at = clock_timestamp() - ${before}::interval where account_id = ${id}`.execute(
      kysely(em),
    );
    await sql`update account_refusals set retry_at = clock_timestamp() where account_id = ${id}`.execute(kysely(em));
  }
}
