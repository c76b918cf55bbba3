/** A team may hold this many times as many places as are free beyond the reserve: alone, two thirds. */
const SHARE = 2;
/** Of the reserve a team may hold this share of what is still free, which comes to a ninth of it. */
const RESERVE_SHARE = 1 / 8;

type Grant = (granted: boolean) => void;

/**
 * A number of places that teams share. A team takes another one while it holds fewer than `SHARE` times as many as are
 * free: one that keeps its places for long leaves some to the others. After seven such teams hardly any is left: the reserve gives
 * further teams smaller shares.
 */
export class SharedPlaces {
  #free: number;
  readonly #reserve: number;
  /** Places by the team that holds them. */
  readonly #taken = new Map<string, number>();
  /** Those that wait for a place, by team; the team that got one last is the last. */
  readonly #waiting = new Map<string, Set<Grant>>();

  /** @param reserve places beside these, for teams that find too few of these free */
  constructor(places: number, reserve = 0) {
    this.#free = places + reserve;
    this.#reserve = reserve;
  }

  /**
   * Takes a place for a team, as soon as it may have one; `giveBack` must follow.
   * @param signal ends the wait
   * @returns false when the wait was ended: no place is held
   */
  take(teamId: string, signal?: AbortSignal): Promise<boolean> {
    if (signal?.aborted) return Promise.resolve(false);
    if (!this.#waiting.has(teamId) && this.#mayTake(teamId)) {
      this.#assign(teamId);
      return Promise.resolve(true);
    }
    const { promise, resolve } = Promise.withResolvers<boolean>();
    const queue = this.#waiting.get(teamId) ?? new Set();
    this.#waiting.set(teamId, queue.add(resolve));
    signal?.addEventListener("abort", () => {
      if (this.#leave(teamId, queue, resolve)) resolve(false);
    });
    return promise;
  }

  giveBack(teamId: string): void {
    const taken = (this.#taken.get(teamId) ?? 0) - 1;
    if (taken > 0) this.#taken.set(teamId, taken);
    else this.#taken.delete(teamId);
    this.#free++;
    // A team that gets a place moves to the end, so that the loop comes to it again after the others.
    for (const [waitingId, queue] of this.#waiting) {
      const [grant] = queue;
      if (!grant || !this.#mayTake(waitingId)) continue;
      this.#waiting.delete(waitingId);
      this.#waiting.set(waitingId, queue);
      this.#leave(waitingId, queue, grant);
      this.#assign(waitingId);
      grant(true);
    }
  }

  /** Does a team's work in a place. */
  async run<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    await this.take(teamId);
    try {
      return await work();
    } finally {
      this.giveBack(teamId);
    }
  }

  #mayTake(teamId: string): boolean {
    const taken = this.#taken.get(teamId) ?? 0;
    const ofReserve = Math.min(this.#free, this.#reserve) * RESERVE_SHARE;
    return taken < Math.max((this.#free - this.#reserve) * SHARE, ofReserve);
  }

  #assign(teamId: string): void {
    this.#free--;
    this.#taken.set(teamId, (this.#taken.get(teamId) ?? 0) + 1);
  }

  #leave(teamId: string, queue: Set<Grant>, grant: Grant): boolean {
    const waited = queue.delete(grant);
    if (queue.size === 0 && this.#waiting.get(teamId) === queue) this.#waiting.delete(teamId);
    return waited;
  }
}
