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

interface Line {
  taken: number;
  /** Each begins the work of one that waits. */
  waiting: Set<() => void>;
}

interface Places {
  places: number;
  /** Of one key. */
  most: number;
  mostWaitMs: number;
}

/** Shares places among keys: a key has at most so many of them, and keys that wait are served in turn. */
export class FairQueue {
  readonly #most: number;
  readonly #mostWaitMs: number;
  #free: number;
  readonly #lines = new Map<string, Line>();
  /** Lines in which one waits, the one that was served last behind all others. */
  readonly #queue = new Set<Line>();

  constructor({ places, most, mostWaitMs }: Places) {
    this.#free = places;
    this.#most = most;
    this.#mostWaitMs = mostWaitMs;
  }

  /** Waits for a place. @returns gives it back @throws {NoPlaceError} */
  async take({ key, hasEnded }: Claim): Promise<() => void> {
    const line = this.#lines.get(key) ?? { taken: 0, waiting: new Set() };
    this.#lines.set(key, line);
    if (this.#free > 0 && line.taken < this.#most) this.#begin(line);
    else await this.#wait(key, line);
    const leave = () => this.#leave(key, line);
    if (!hasEnded?.()) return leave;
    leave();
    throw new NoPlaceError(false);
  }

  get waiting(): number {
    let sum = 0;
    for (const { waiting } of this.#queue) sum += waiting.size;
    return sum;
  }

  async #wait(key: string, line: Line): Promise<void> {
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    const timer = setTimeout(() => {
      this.#unqueue(line, resolve);
      this.#forget(key, line);
      reject(new NoPlaceError(true));
    }, this.#mostWaitMs);
    line.waiting.add(resolve);
    this.#queue.add(line);
    await promise;
    clearTimeout(timer);
  }

  #unqueue(line: Line, waiting: () => void): void {
    line.waiting.delete(waiting);
    this.#queue.delete(line);
    if (line.waiting.size > 0) this.#queue.add(line);
  }

  #begin(line: Line): void {
    this.#free--;
    line.taken++;
  }

  #leave(key: string, line: Line): void {
    this.#free++;
    line.taken--;
    for (const next of this.#queue) {
      const [begin] = next.waiting;
      if (!begin || next.taken >= this.#most) continue;
      this.#unqueue(next, begin);
      this.#begin(next);
      begin();
      break;
    }
    this.#forget(key, line);
  }

  #forget(key: string, { taken, waiting }: Line): void {
    if (taken + waiting.size === 0) this.#lines.delete(key);
  }
}
