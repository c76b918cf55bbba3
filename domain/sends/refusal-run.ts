import { createHash } from "node:crypto";
import { sql } from "kysely";
import type { RefusalRun } from "../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import { type Refusal, UNDECIDED } from "../mail/outcome.ts";
import type { SendingAccount } from "./account-capacity.ts";
import { isFreeFor, type OpenedDispatch } from "./lanes.ts";

const SAME_TO_PAUSE = 10;
const OF_ACCOUNT_TO_PAUSE = 3;
const NAMELESS_TO_PAUSE = 20;

const NONE: RefusalRun = { key: "", same: 0, domain: "", areAtSeveralDomains: false, ofAccount: 0, nameless: 0 };

/** @param email of the recipient */
export function addRefusal(run: RefusalRun | null, refusal: Refusal, email: string): RefusalRun {
  const domain = createHash("sha256")
    .update(email.slice(email.lastIndexOf("@")))
    .digest("base64url")
    .slice(0, 8);
  const { key, same, ofAccount, nameless, ...first } = run ?? NONE;
  const isSame = key === refusal.key;
  return {
    key: refusal.key,
    same: isSame ? same + 1 : 1,
    domain: isSame ? first.domain : domain,
    areAtSeveralDomains: isSame && (first.areAtSeveralDomains || first.domain !== domain),
    ofAccount: ofAccount + Number(refusal.isAccounts),
    nameless: nameless + Number(refusal.namesMailbox === undefined),
  };
}

/** Whether the last refusal of a run shows that its server takes no mail from the account, for any recipient. */
export const isOfAccount = ({ same, areAtSeveralDomains, ofAccount }: RefusalRun, refusal: Refusal): boolean =>
  (refusal.isAccounts && (refusal.isFirstOfLogin || ofAccount >= OF_ACCOUNT_TO_PAUSE)) ||
  (same >= SAME_TO_PAUSE && areAtSeveralDomains);

export const isLong = ({ nameless }: RefusalRun): boolean => nameless >= NAMELESS_TO_PAUSE;

/** @param run null once the server has taken a mail */
export async function storeRefusalRun(
  em: EntityManager,
  account: SendingAccount,
  run: RefusalRun | null,
): Promise<void> {
  await kysely(em)
    .updateTable("email_accounts")
    .set({ refusals: run && sql<RefusalRun>`${JSON.stringify(run)}::jsonb` })
    .where("id", "=", account.accountId)
    .where(ofTenant(account))
    .execute();
}

/**
 * Puts recipients whose refusal was the account's back into the queue of a lane.
 * @returns the `seq` of the first of them; undefined when there is none
 */
export async function requeueUndecided(em: EntityManager, dispatch: OpenedDispatch): Promise<number | undefined> {
  const { rows } = await sql<{ seq: number | null }>`
    with requeued as (
      update send_recipients r set state = 'QUEUED', reason = null, account_id = null, attempts = r.attempts - 1,
        retry_at = null, first_deferred_at = null, updated_at = now()
      where r.send_id = ${dispatch.sendId} and r.retry_at is not null and r.state = 'DEFERRED' and r.reason = ${UNDECIDED}
        and ${isFreeFor(dispatch, "r")}
      returning r.seq
    ) select min(seq) as seq from requeued`.execute(kysely(em));
  return rows[0]?.seq ?? undefined;
}
