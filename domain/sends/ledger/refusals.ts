import { createHash } from "node:crypto";
import { sql } from "kysely";
import type { RefusalRun } from "../../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant } from "../../../db/orm.ts";
import {
  type Mailed,
  type MailOutcome,
  type Refusal,
  type ReplyDetails,
  UNDECIDED,
  UNSENDABLE,
} from "../../mail/outcome.ts";
import { PAUSE_REASONS } from "../pause-reasons.ts";
import type { SendingAccount } from "./account-capacity.ts";
import { isFreeFor, type OpenedDispatch } from "./lanes.ts";
import type { StagedRecipient } from "./moves.ts";

const ALIKE_TO_PAUSE = 10;
const OF_ACCOUNT_TO_PAUSE = 3;
const IN_ALL_TO_PAUSE = 20;

const NONE: RefusalRun = { key: "", same: 0, domain: "", areAtSeveralDomains: false, ofAccount: 0, inAll: 0 };

/** @param email of the recipient */
function addRefusal(run: RefusalRun | null, refusal: Refusal, email: string): RefusalRun {
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
const isOfAccount = (
  { same, areAtSeveralDomains, ofAccount }: RefusalRun,
  { isAccounts, isFirstOfLogin, isTemporary }: Refusal,
  hasAccepted: boolean,
): boolean =>
  (isAccounts && ((isFirstOfLogin && !isTemporary && !hasAccepted) || ofAccount >= OF_ACCOUNT_TO_PAUSE)) ||
  (same >= ALIKE_TO_PAUSE && areAtSeveralDomains);

const isLong = ({ inAll }: RefusalRun): boolean => inAll >= IN_ALL_TO_PAUSE;

/** The send must pause for it. `isAccounts`: the server takes no mail from the account. */
export type PauseCause = ReplyDetails & { reason: string; isAccounts: boolean };

type Recipient = Pick<StagedRecipient, "seq" | "email" | "wasDeferred">;
type Refused = Extract<MailOutcome, { refusal?: unknown }>;

interface Held {
  item: Recipient;
  outcome: Refused;
}

export const UNDECIDED_YET: MailOutcome = { outcome: "deferred", reason: UNDECIDED, retry: false };

/**
 * Decides whether the refusals of a slice are about their recipients or about the account. Equal refusals of many recipients,
 * with no accepted mail between them, are about the account. Until an accepted mail, such a run or the end of the lane
 * decides, a refused recipient is DEFERRED with the reason `undecided`: a process that dies leaves it to be asked again.
 */
export class Refusals {
  /** Null when the account's server has taken a mail since, and after an operator's command. */
  run: RefusalRun | null;
  /** The account has had mail accepted in this send. */
  hasAccepted: boolean;
  /** Mail was accepted in this slice. */
  hasMailed = false;
  pauseCause: PauseCause | undefined;
  readonly #dispatch: Pick<OpenedDispatch, "refusals" | "areGone" | "isWave">;
  #held: Held[] = [];
  /** Mails in a row that could not be composed: no server has seen them. */
  #unsendable = 0;

  constructor(dispatch: Pick<OpenedDispatch, "refusals" | "hasAccepted" | "areGone" | "isWave">, tryNow = false) {
    this.#dispatch = dispatch;
    this.run = tryNow ? null : dispatch.refusals;
    this.hasAccepted = dispatch.hasAccepted;
  }

  /** @param mails in the order of their replies @returns what is to be written now, with what they have decided */
  take<Item extends Recipient>(mails: readonly Mailed<Item>[]): Mailed<Recipient>[] {
    const decided: Mailed<Recipient>[] = [];
    let undecided: Recipient[] = [];
    for (const mail of mails) {
      const { item, outcome } = mail;
      const isSent = outcome.outcome === "sent";
      const refusal = "refusal" in outcome ? outcome.refusal : undefined;
      if (isSent) {
        this.hasAccepted = true;
        this.hasMailed = true;
        this.#unsendable = 0;
      }
      // Another send of the account may have had mail accepted, too.
      const acceptedAt = isSent ? (outcome.begunAt ?? Number.POSITIVE_INFINITY) : refusal?.acceptedBegunAt;
      const isOpen = this.run !== null || this.#held.length > 0;
      if (acceptedAt !== undefined && isOpen && !this.pauseCause) {
        const released = this.#release(acceptedAt);
        decided.push(...released);
        undecided = undecided.filter(({ seq }) => !released.some((one) => one.item.seq === seq));
      }
      if (refusal && !this.#isBelieved(refusal)) {
        this.#hold({ item, outcome: outcome as Refused });
        undecided.push(item);
      } else decided.push(mail);
    }
    return [...decided, ...undecided.map((item) => ({ item, outcome: UNDECIDED_YET }))];
  }

  /** Decides at the end of the lane, as far as the recipients are at fault. @returns what is to be written */
  decide(): Mailed<Recipient>[] {
    const account = this.#held.find(({ outcome }) => outcome.refusal?.isAccounts);
    if (account && !this.hasAccepted) this.#pause(account.outcome, true);
    if (this.pauseCause) return [];
    const decided = this.#held.filter((held) => !this.#mayWait(held));
    this.#held = [];
    return decided;
  }

  /** Such a person is asked again later, for as long as a deferred one. */
  #mayWait({ item, outcome }: Held): boolean {
    const { isWave, refusals } = this.#dispatch;
    if (outcome.refusal?.isAccounts) return !item.wasDeferred;
    if (!isWave || this.hasAccepted || outcome.reason === UNSENDABLE.reason) return false;
    // The waves of a sequence are small: until another one had mail accepted, the refusal may be the account's. A mailbox
    // that is named is believed where no other recipient was refused meanwhile.
    const isAlone = outcome.refusal?.namesMailbox !== undefined && refusals !== null && refusals.inAll <= 1;
    return !(item.wasDeferred && (refusals === null || isAlone));
  }

  #isBelieved({ namesMailbox, isAccounts }: Refusal): boolean {
    if (namesMailbox === undefined || isAccounts) return false;
    return this.#dispatch.areGone || (this.hasAccepted && namesMailbox === "code");
  }

  /**
   * Decides the refusals that came before an accepted mail began: its server may have taken the recipient of an earlier one
   * before it refused others. @returns those that are final
   */
  #release(acceptedAt: number): Held[] {
    const isBefore = ({ outcome }: Held) => (outcome.refusal?.at ?? 0) <= acceptedAt;
    const [before, after] = [this.#held.filter(isBefore), this.#held.filter((held) => !isBefore(held))];
    this.#held = after;
    this.run = after.reduce<RefusalRun | null>(
      (run, { item, outcome }) => (outcome.refusal ? addRefusal(run, outcome.refusal, item.email) : run),
      null,
    );
    // A reply about the account is asked for once more.
    const final = before.filter(({ item, outcome }) => !outcome.refusal?.isAccounts || item.wasDeferred);
    return final.map(({ item, outcome }) => {
      const isGone = outcome.outcome === "rejected" && outcome.refusal?.mayBeGone === true;
      return { item, outcome: isGone ? { ...outcome, suppress: true } : outcome };
    });
  }

  #hold(held: Held): void {
    const { item, outcome } = held;
    const { refusal } = outcome;
    this.#held.push(held);
    if (!refusal) return;
    if (outcome.reason === UNSENDABLE.reason) {
      if (++this.#unsendable >= ALIKE_TO_PAUSE) this.#pause(outcome, false, PAUSE_REASONS.unsendable);
      return;
    }
    // A recipient who is asked again counts once.
    const wasCounted = this.run?.key === refusal.key && item.wasDeferred;
    if (!this.run || !wasCounted) this.run = addRefusal(this.run, refusal, item.email);
    if (isOfAccount(this.run, refusal, this.hasAccepted)) this.#pause(outcome, true);
    else if (isLong(this.run)) this.#pause(outcome, false);
  }

  #pause(
    { code, enhanced, response }: ReplyDetails,
    isAccounts: boolean,
    reason: string = PAUSE_REASONS.refusals,
  ): void {
    this.pauseCause ??= { code, enhanced, response, reason, isAccounts };
  }
}

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
