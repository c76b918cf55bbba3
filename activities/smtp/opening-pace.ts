import type { AccountFailure } from "../../domain/mail/outcome.ts";

/** How long no connection is opened after a refusal. It doubles with each further one in a row. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;

/**
 * When a pool may open another connection. While none is logged in, a single one finds out whether the server takes the
 * login; then at most as many are opened at once as are logged in, so that a refusal is seen before most attempts are
 * made. After a refusal comes a pause, then a single attempt. All times in ms of the caller's clock.
 */
export class OpeningPace {
  /** Refusals in a row. */
  #refusals = 0;
  #last: AccountFailure | undefined;
  #pausedUntil = 0;

  /** The last refusal, while no connection may be opened because of it. */
  refusalAt(now: number): AccountFailure | undefined {
    return now < this.#pausedUntil ? this.#last : undefined;
  }

  /** How many connections may be opened at `now`, with `loggedIn` at work and `opening` on their way. */
  openable(now: number, loggedIn: number, opening: number): number {
    if (this.refusalAt(now)) return 0;
    const atOnce = this.#refusals > 0 ? 1 : Math.max(1, loggedIn);
    return Math.max(0, atOnce - opening);
  }

  /**
   * A connection was refused, or failed before its login.
   * @returns false when it was opened before the refusal that is known already: the pause stays as it is
   */
  recordRefusal(refusal: AccountFailure, now: number): boolean {
    if (this.refusalAt(now)) return false;
    this.#refusals++;
    this.#last = refusal;
    this.#pausedUntil = now + Math.min(FIRST_PAUSE_MS * 2 ** (this.#refusals - 1), LONGEST_PAUSE_MS);
    return true;
  }

  /** A connection has logged in. */
  recordLogin(): void {
    this.#refusals = 0;
    this.#pausedUntil = 0;
  }

  /** Ends the pause; a single connection may be opened. */
  endPause(): void {
    this.#pausedUntil = 0;
  }
}
