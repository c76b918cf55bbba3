import type { AccountFailure } from "../../domain/mail/outcome.ts";

/** How long no connection is opened after a refusal. It doubles with each further one in a row. */
const FIRST_PAUSE_MS = 1_000;
const LONGEST_PAUSE_MS = 60_000;
/** So long the connections beside which the server refused another one count as its limit. */
const LIMIT_MS = 60_000;

/**
 * When a pool may open another connection: as many at once as are logged in, so that a refusal is seen before most
 * attempts are made; after a refusal a pause, then one. Connections that work beside a refusal are the server's limit
 * for a while; without a reply it may be chance, and the limit lasts 1 s. All times in ms of the caller's
 * clock.
 */
export class OpeningPace {
  #refusals = 0;
  #last: AccountFailure | undefined;
  #pausedUntil = 0;
  /** After `until` more may be opened, and each login beyond `connections` raises it. */
  #limit = { connections: Number.POSITIVE_INFINITY, until: 0 };

  /** Those beside its last refusal, or that logged in since; all without one. */
  get most(): number {
    return this.#limit.connections;
  }

  /** While no connection may be opened because of it. */
  refusalAt(now: number): AccountFailure | undefined {
    return now < this.#pausedUntil ? this.#last : undefined;
  }

  openable(now: number, loggedIn: number, opening: number): number {
    if (this.refusalAt(now)) return 0;
    const atOnce = this.#refusals > 0 ? 1 : Math.max(1, loggedIn);
    const limit = now < this.#limit.until ? this.#limit.connections : Number.POSITIVE_INFINITY;
    return Math.max(0, Math.min(atOnce, limit - loggedIn) - opening);
  }

  /** @returns false when it was opened before the refusal that is known already: the pause stays as it is */
  recordRefusal(refusal: AccountFailure, now: number, loggedIn: number): boolean {
    if (this.refusalAt(now)) return false;
    this.#refusals++;
    this.#last = refusal;
    this.#pausedUntil = now + Math.min(FIRST_PAUSE_MS * 2 ** (this.#refusals - 1), LONGEST_PAUSE_MS);
    if (loggedIn > 0) {
      const limitMs = refusal.code === undefined ? FIRST_PAUSE_MS : LIMIT_MS;
      this.#limit = { connections: loggedIn, until: now + limitMs };
    }
    return true;
  }

  recordLogin(loggedIn: number): void {
    this.#refusals = 0;
    this.#pausedUntil = 0;
    // More than seemed to be allowed: a login takes longer than a refusal.
    this.#limit.connections = Math.max(this.#limit.connections, loggedIn);
  }

  endPause(): void {
    this.#pausedUntil = 0;
  }
}
