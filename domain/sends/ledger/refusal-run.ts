import { createHash } from "node:crypto";
import { sql } from "kysely";
import type { RefusalRun } from "../../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant } from "../../../db/orm.ts";
import { type Refusal, UNDECIDED } from "../../mail/outcome.ts";
import type { SendingAccount } from "./account-capacity.ts";
import { isFreeFor, type OpenedDispatch } from "./lanes.ts";

export const ALIKE_TO_PAUSE = 10;
const OF_ACCOUNT_TO_PAUSE = 3;
const IN_ALL_TO_PAUSE = 20;

const NONE: RefusalRun = { key: "", same: 0, domain: "", areAtSeveralDomains: false, ofAccount: 0, inAll: 0 };

/** @param email of the recipient */
export function addRefusal(run: RefusalRun | null, refusal: Refusal, email: string): RefusalRun {
  const domain = createHash("sha256")
    .update(email.slice(email.lastIndexOf("@")))
    .digest("base64url")
    .slice(0, 8);
  const { key, same, ofAccount, inAll, ...first } = run ?? NONE;
  const isSame = key === refusal.key;
  return {
    key: refusal.key,
    same: isSame ? same + 1 : 1,
    domain: isSame ? first.domain : domain,
    areAtSeveralDomains: isSame && (first.areAtSeveralDomains || first.domain !== domain),
    ofAccount: ofAccount + Number(refusal.isAccounts),
    inAll: inAll + 1,
  };
}

/**
 * Whether the last refusal of a run shows that its server takes no mail from the account, for any recipient.
 * @param hasAccepted the account has had mail accepted in this send
 */
export const isOfAccount = (
  { same, areAtSeveralDomains, ofAccount }: RefusalRun,
  { isAccounts, isFirstOfLogin, isTemporary }: Refusal,
  hasAccepted: boolean,
): boolean =>
  (isAccounts && ((isFirstOfLogin && !isTemporary && !hasAccepted) || ofAccount >= OF_ACCOUNT_TO_PAUSE)) ||
  (same >= ALIKE_TO_PAUSE && areAtSeveralDomains);

export const isLong = ({ inAll }: RefusalRun): boolean => inAll >= IN_ALL_TO_PAUSE;

/**
 * Stores the run at the end of a slice. One that another slice has changed meanwhile stays as it is.
 * @param before as it was at the slice's beginning @param run null once the server has taken a mail
 */
export async function storeRefusalRun(
  em: EntityManager,
  account: SendingAccount,
  before: RefusalRun | null,
  run: RefusalRun | null,
): Promise<void> {
  const json = (value: RefusalRun | null) => sql<RefusalRun>`${value && JSON.stringify(value)}::jsonb`;
  await kysely(em)
    .updateTable("email_accounts")
    .set({ refusals: json(run) })
    .where("id", "=", account.accountId)
    .where(ofTenant(account))
    .where(run ? sql<boolean>`refusals is not distinct from ${json(before)}` : sql<boolean>`refusals is not null`)
    .execute();
}

/**
 * Puts recipients whose refusal was the account's back into the queue of a lane.
 * @returns the `seq` of the first of them; undefined when there is none; `stale` when another attempt has the lane
 */
export async function requeueUndecided(
  em: EntityManager,
  dispatch: OpenedDispatch,
): Promise<number | undefined | "stale"> {
  const { sendId, accountId, epoch } = dispatch;
  const { rows } = await sql<{ seq: number | null; isLive: boolean }>`
    with live as (
      select 1 from send_lanes where send_id = ${sendId} and account_id = ${accountId} and epoch = ${epoch} for share
    ), requeued as (
      update send_recipients r set state = 'QUEUED', reason = null, account_id = null, attempts = r.attempts - 1,
        retry_at = null, first_deferred_at = null, updated_at = now()
      from live
      where r.send_id = ${sendId} and r.state in ('DEFERRED', 'EXPIRED') and r.reason = ${UNDECIDED}
        and ${isFreeFor(dispatch, "r")}
      returning r.seq
    ) select (select min(seq) from requeued) as seq, exists (select from live) as "isLive"`.execute(kysely(em));
  const [{ seq, isLive } = { seq: null, isLive: false }] = rows;
  return isLive ? (seq ?? undefined) : "stale";
}
