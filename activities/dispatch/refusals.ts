import type { RefusalRun } from "../../db/entities/account.ts";
import { type Mailed, type MailOutcome, type ReplyDetails, UNDECIDED } from "../../domain/mail/outcome.ts";
import type { OpenedDispatch } from "../../domain/sends/lanes.ts";
import { addRefusal, isLong, isOfAccount } from "../../domain/sends/refusal-run.ts";
import type { StagedRecipient } from "../../domain/sends/staging.ts";

/** The send must pause for it. `isAccounts`: the server takes no mail from the account. */
export type FoundRefusal = ReplyDetails & { isAccounts: boolean };

type Recipient = Pick<StagedRecipient, "seq" | "email" | "wasDeferred">;
type Refused = Extract<MailOutcome, { refusal?: unknown }>;

interface Held {
  item: Recipient;
  outcome: Refused;
}

const UNDECIDED_YET: MailOutcome = { outcome: "deferred", reason: UNDECIDED, retry: false };

/**
 * Finds whose fault the refusals of a slice are. What many recipients are told alike, with no mail accepted between, is
 * the account's: until an accepted mail, such a run or the lane's end decides, a refused recipient is DEFERRED, with the
 * reason `undecided`, and a process that dies leaves it to be asked again.
 */
export class Refusals {
  /** Null when the account's server has taken a mail since. */
  run: RefusalRun | null;
  /** The account has had mail accepted in this send. */
  hasAccepted: boolean;
  /** Mail was accepted in this slice. */
  hasMailed = false;
  found: FoundRefusal | undefined;
  readonly #dispatch: Pick<OpenedDispatch, "refusals" | "areGone" | "isWave">;
  #held: Held[] = [];

  constructor(dispatch: Pick<OpenedDispatch, "refusals" | "hasAccepted" | "areGone" | "isWave">) {
    this.#dispatch = dispatch;
    this.run = dispatch.refusals;
    this.hasAccepted = dispatch.hasAccepted;
  }

  /** @param mails in the order of their replies @returns what is to be written now, with what they have decided */
  take<Item extends Recipient>(mails: readonly Mailed<Item>[]): Mailed<Recipient>[] {
    const decided: Mailed<Recipient>[] = [];
    let undecided: Recipient[] = [];
    for (const mail of mails) {
      const { item, outcome } = mail;
      const isFirst = this.run !== null || !this.hasMailed;
      if (outcome.outcome === "sent" && isFirst && !this.found) {
        decided.push(...this.#accept());
        undecided = [];
      }
      if ("refusal" in outcome && outcome.refusal && !this.#isBelieved(outcome)) {
        this.#hold({ item, outcome });
        undecided.push(item);
      } else decided.push(mail);
    }
    return [...decided, ...undecided.map((item) => ({ item, outcome: UNDECIDED_YET }))];
  }

  /** Decides at the end of the lane, as far as the recipients are at fault. @returns what is to be written */
  decide(): Mailed<Recipient>[] {
    const account = this.#held.find(({ outcome }) => outcome.refusal?.isAccounts);
    if (account) this.#find(account.outcome, true);
    if (this.found) return [];
    const { isWave, refusals } = this.#dispatch;
    // The waves of a sequence are small: such a person is asked again until another wave had mail accepted.
    const mayWait = ({ wasDeferred }: Recipient) => isWave && !this.hasAccepted && !(wasDeferred && refusals === null);
    const decided = this.#held.filter(
      ({ item, outcome }) => outcome.refusal?.namesMailbox !== undefined || !mayWait(item),
    );
    this.#held = [];
    return decided;
  }

  #isBelieved({ refusal }: Refused): boolean {
    if (refusal?.namesMailbox === undefined || refusal.isAccounts) return false;
    return this.#dispatch.areGone || (this.hasAccepted && refusal.namesMailbox === "code");
  }

  /** @returns the refusals that came before the mail: they are final */
  #accept(): Mailed<Recipient>[] {
    this.run = null;
    this.hasAccepted = true;
    this.hasMailed = true;
    return this.#held.splice(0).map(({ item, outcome }) => {
      const isGone = outcome.outcome === "rejected" && outcome.refusal?.mayBeGone === true;
      return { item, outcome: isGone ? { ...outcome, suppress: true } : outcome };
    });
  }

  #hold(held: Held): void {
    const { item, outcome } = held;
    this.#held.push(held);
    if (!outcome.refusal) return;
    // Each person of a wave counts once.
    const isCounted = this.run?.key === outcome.refusal.key && this.#dispatch.isWave && item.wasDeferred;
    if (!this.run || !isCounted) this.run = addRefusal(this.run, outcome.refusal, item.email);
    if (isOfAccount(this.run, outcome.refusal)) this.#find(outcome, outcome.reason !== "unsendable");
    else if (isLong(this.run)) this.#find(outcome, false);
  }

  #find({ code, enhanced, response }: ReplyDetails, isAccounts: boolean): void {
    this.found ??= { code, enhanced, response, isAccounts };
  }
}
