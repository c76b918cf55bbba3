import type { EntityManager } from "../../db/orm.ts";
import { type AccountLimits, type Quota, returnQuota, takeQuota } from "../../domain/sends/account-capacity.ts";
import type { StagedRecipient } from "../../domain/sends/staging.ts";
import { elapsedMs } from "../../lib/elapsed.ts";
import type { InFlightLimit } from "../account-pools.ts";

export interface MailShare extends Quota {
  /** `elapsedMs()` at which the first of the windows ends. */
  endsAt: number;
}

export interface AllowedRecipient extends StagedRecipient {
  share: MailShare;
}

/** Whether a mail may begin now: after the end of its windows it could exceed the limit of the next ones. */
export const isWithinWindows = ({ endsAt }: MailShare): boolean => elapsedMs() < endsAt;

export class Allowance {
  readonly #em: EntityManager;
  readonly #accountId: string;
  readonly #limits: AccountLimits;
  readonly #inFlight: InFlightLimit;
  #rows = 0;

  constructor(em: EntityManager, accountId: string, limits: AccountLimits, inFlight: InFlightLimit) {
    this.#em = em;
    this.#accountId = accountId;
    this.#limits = limits;
    this.#inFlight = inFlight;
  }

  /** @returns as `InFlightLimit.take` */
  async takeRows(rows: () => number, signal: AbortSignal): Promise<number> {
    const taken = await this.#inFlight.take(rows, signal);
    this.#rows += taken;
    return taken;
  }

  returnRows(rows: number): void {
    this.#rows -= rows;
    this.#inFlight.giveBack(rows);
  }

  /** Returns the rows that could not be settled too: the next attempt finds those. */
  returnAllRows(): void {
    this.returnRows(this.#rows);
  }

  async takeMails(mails: number): Promise<MailShare> {
    const askedAt = elapsedMs();
    const quota = await takeQuota(this.#em, this.#accountId, this.#limits, mails);
    return { ...quota, endsAt: askedAt + quota.endsInMs };
  }

  async returnMails(share: MailShare, mails: number): Promise<void> {
    if (mails > 0) await returnQuota(this.#em, this.#accountId, share, mails);
  }
}
