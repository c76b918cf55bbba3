/** Whom a piece of work is for, and whether its caller has gone. */
export interface Claim {
  readonly key: string;
  readonly hasEnded?: () => boolean;
}

/** No place was free before the caller had gone or got its answer, or in time. */
export class NoPlaceError extends Error {
  readonly code = "ETIMEDOUT";
  readonly isAwaited: boolean;

  constructor(isAwaited: boolean) {
    super(isAwaited ? "no place was free in time" : "the caller has gone, or got its answer, before its turn");
    this.isAwaited = isAwaited;
  }
}

/** A request that has a deadline of its own ends before; the others end by this. */
const MOST_WAIT_MS = 30_000;

interface Line {
  taken: number;
  /** Each begins the work of one that waits. */
  waiting: Set<() => void>;
}

/**
 * Shares places among keys: a key has at most a quarter of them, rounded up, and keys that wait are served in turn. The
 * rest is left to others even while none waits, because work that has begun cannot be taken back.
 */
export class FairQueue {
  readonly #most: number;
  /** Those with work, the one that was served last behind all others. */
  readonly #lines = new Map<string, Line>();
  readonly #mostWaitMs: number;
  #free: number;

  constructor(places: number, mostWaitMs = MOST_WAIT_MS) {
    this.#free = places;
    this.#most = Math.ceil(places / 4);
    this.#mostWaitMs = mostWaitMs;
  }

  /** Waits for a place. @returns gives it back @throws {NoPlaceError} */
  async take({ key, hasEnded }: Claim): Promise<() => void> {
    const line = this.#lines.get(key) ?? { taken: 0, waiting: new Set() };
    this.#lines.set(key, line);
    if (this.#free > 0 && line.taken < this.#most) this.#begin(key, line);
    else await this.#wait(key, line);
    const leave = () => this.#leave(key, line);
    if (!hasEnded?.()) return leave;
    leave();
    throw new NoPlaceError(false);
  }

  get waiting(): number {
    let sum = 0;
    for (const { waiting } of this.#lines.values()) sum += waiting.size;
    return sum;
  }

  async #wait(key: string, line: Line): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      line.waiting.delete(resolve);
      this.#forget(key, line);
      reject(new NoPlaceError(true));
    }, this.#mostWaitMs);
    line.waiting.add(resolve);
    await promise;
    clearTimeout(timer);
  }

  #begin(key: string, line: Line): void {
    this.#free--;
    line.taken++;
    this.#lines.delete(key);
    this.#lines.set(key, line);
  }

  #leave(key: string, line: Line): void {
    this.#free++;
    line.taken--;
    this.#forget(key, line);
    for (const [nextKey, next] of this.#lines) {
      const [begin] = next.waiting;
      if (!begin || next.taken >= this.#most) continue;
      next.waiting.delete(begin);
      this.#begin(nextKey, next);
      begin();
      break;
    }
  }

  #forget(key: string, { taken, waiting }: Line): void {
    if (taken + waiting.size === 0) this.#lines.delete(key);
  }
}
