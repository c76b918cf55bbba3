import type { EntityManager } from "../../db/orm.ts";
import { type AccountLimits, type Quota, returnQuota, takeQuota } from "../../domain/sends/account-capacity.ts";
import type { InFlightLimit } from "../account-pools.ts";

/** A slice's share of its account's limits: the stager takes, the settler gives back. */
export class Allowance {
  readonly #em: EntityManager;
  readonly #accountId: string;
  readonly #limits: AccountLimits;
  readonly #inFlight: InFlightLimit;
  /** Rows of the account's in-flight limit that this slice holds. */
  #rows = 0;
  /** The last share of the hourly and daily limits; undefined where the account has none. */
  #quota: Quota | undefined;

  constructor(em: EntityManager, accountId: string, limits: AccountLimits, inFlight: InFlightLimit) {
    this.#em = em;
    this.#accountId = accountId;
    this.#limits = limits;
    this.#inFlight = inFlight;
  }

  /** Takes rows of the in-flight limit, once there is room. @returns false when `signal` is aborted first */
  async takeRows(rows: number, signal: AbortSignal): Promise<boolean> {
    const wake = () => this.#inFlight.wake();
    signal.addEventListener("abort", wake);
    try {
      while (!signal.aborted) {
        if (this.#inFlight.take(rows)) {
          this.#rows += rows;
          return true;
        }
        await this.#inFlight.returned();
      }
      return false;
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  returnRows(rows: number): void {
    this.#rows -= rows;
    this.#inFlight.giveBack(rows);
  }

  /** Rows that could not be settled are found by the next attempt; the room that they took is free again. */
  returnAllRows(): void {
    this.returnRows(this.#rows);
  }

  /** Takes up to `mails` of the hourly and daily limits. @returns how many, and if none, how long they are used up */
  async takeMails(mails: number): Promise<{ granted: number; retryInMs: number }> {
    if (this.#limits.hourly === null && this.#limits.daily === null) return { granted: mails, retryInMs: 0 };
    this.#quota = await takeQuota(this.#em, this.#accountId, this.#limits, mails);
    return this.#quota;
  }

  async returnMails(mails: number): Promise<void> {
    if (this.#quota && mails > 0) await returnQuota(this.#em, this.#accountId, this.#quota, mails);
  }
}
