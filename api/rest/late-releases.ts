import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import type { EntityManager } from "../../db/orm.ts";
import { type Release, type RequestClaim, releaseKey, STALLED_SECONDS } from "../../domain/access/idempotency.ts";
import { elapsedMs } from "../../lib/elapsed.ts";

/** Keys that wait at most. Each is one of a request that was under way when Postgres went away. */
const MOST_WAITING = 1_000;
/** How long is waited after a try that failed: a Postgres that comes back has better things to do. */
const SPACING_MS = 1_000;

interface Waiting {
  claim: RequestClaim;
  release: Release;
  failedAt: number;
}

/**
 * Gives back the keys of requests that failed while Postgres was away. Else each would stay claimed until its request is
 * presumed dead, and the client's retry would be refused although nothing is under way.
 */
export class LateReleases {
  readonly #em: EntityManager;
  readonly #log: Logger;
  readonly #most: number;
  readonly #waiting: Waiting[] = [];
  readonly #closing = new AbortController();
  #isRunning = false;
  #run = Promise.resolve();

  /** @param limits `most`: keys that wait at most */
  constructor(em: EntityManager, log: Logger, { most = MOST_WAITING }: { most?: number } = {}) {
    this.#em = em;
    this.#log = log;
    this.#most = most;
  }

  /** Releases a key once Postgres answers again. Its request has ended: it neither works nor renews its claim any more. */
  add(claim: RequestClaim, release: Release): void {
    if (this.#waiting.length >= this.#most) {
      const { teamId, requestId } = claim;
      this.#log.warn({ teamId, requestId }, "key not released: too many wait");
      return;
    }
    this.#waiting.push({ claim, release, failedAt: elapsedMs() });
    if (!this.#isRunning) this.#run = this.#releaseAll();
  }

  /** Tries each key that waits once more, up to the first failure, and ends. */
  async close(): Promise<void> {
    this.#closing.abort();
    await this.#run;
  }

  async #releaseAll(): Promise<void> {
    const { signal } = this.#closing;
    this.#isRunning = true;
    for (let next = this.#waiting.shift(); next; next = this.#waiting.shift()) {
      const { claim, release, failedAt } = next;
      // Its request is presumed dead by now.
      if (elapsedMs() - failedAt >= STALLED_SECONDS * 1_000) continue;
      try {
        await releaseKey(this.#em, claim, release);
      } catch (err) {
        this.#log.warn({ err, teamId: claim.teamId, requestId: claim.requestId }, "key not released");
        if (signal.aborted) break;
        this.#waiting.push(next);
        await delay(SPACING_MS, undefined, { signal }).catch(() => undefined);
      }
    }
    this.#isRunning = false;
  }
}
