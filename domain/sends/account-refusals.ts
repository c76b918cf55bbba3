import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { SmtpReason } from "../mail/outcome.ts";

/** In all processes. It doubles with each further refusal in a row. */
const FIRST_WAIT_SECONDS = 5;
const LONGEST_WAIT_SECONDS = 300;
const TURN_SECONDS = 12;

export interface Refusal {
  reason: SmtpReason;
  /** The failure may pass by itself. */
  temporary: boolean;
  retryInMs: number;
}

export interface Refusals {
  count: number;
  lastedSeconds: number;
}

/** No process tries another connection for a while. */
export async function recordRefusal(
  em: EntityManager,
  accountId: string,
  { reason, temporary }: Pick<Refusal, "reason" | "temporary">,
): Promise<Refusals> {
  const wait = (count: ReturnType<typeof sql>) =>
    sql`clock_timestamp() + make_interval(secs => least(${FIRST_WAIT_SECONDS} * 2 ^ least(${count}, 30), ${LONGEST_WAIT_SECONDS}))`;
  const { rows } = await sql<Refusals>`
    insert into account_refusals as r (account_id, count, since, reason, temporary, retry_at)
    values (${accountId}, 1, clock_timestamp(), ${reason}, ${temporary}, ${wait(sql`0`)})
    on conflict (account_id) do update set count = r.count + 1, reason = excluded.reason,
      temporary = excluded.temporary, retry_at = ${wait(sql`r.count`)}
    returning count, greatest(0, extract(epoch from clock_timestamp() - since))::float8 as "lastedSeconds"`.execute(
    kysely(em),
  );
  return rows[0] ?? { count: 1, lastedSeconds: 0 };
}

/**
 * Lets the caller try a login, and no other process meanwhile. Until its result the refusal counts as one that may
 * pass, which pauses no other send.
 */
export async function takeTurnToTry(em: EntityManager, accountId: string): Promise<void> {
  await sql`update account_refusals
    set temporary = true, retry_at = clock_timestamp() + make_interval(secs => ${TURN_SECONDS})
    where account_id = ${accountId}`.execute(kysely(em));
}

export async function forgetRefusals(em: EntityManager, accountId: string): Promise<void> {
  await kysely(em).deleteFrom("account_refusals").where("account_id", "=", accountId).execute();
}
