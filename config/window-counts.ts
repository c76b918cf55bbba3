/** After `maxKeys` keys all counts start at zero: a flood of keys may lift a limit, but cannot fill the memory. */
export class WindowCounts {
  readonly #windowMs: number;
  readonly #maxKeys: number;
  #counts = new Map<string, number>();
  #startedAt = Number.NEGATIVE_INFINITY;

  constructor({ windowMs, maxKeys }: { windowMs: number; maxKeys: number }) {
    this.#windowMs = windowMs;
    this.#maxKeys = maxKeys;
  }

  /** @returns the events of the key in this window */
  add(key: string): number {
    const now = performance.now();
    if (now - this.#startedAt > this.#windowMs || this.#counts.size >= this.#maxKeys) {
      this.#counts = new Map();
      this.#startedAt = now;
    }
    const count = (this.#counts.get(key) ?? 0) + 1;
    this.#counts.set(key, count);
    return count;
  }
}
