export interface Watched {
  /** A pass of the loop, or a step of the task, has succeeded. */
  moved(): void;
  end(): void;
}

/** Knows which loops and tasks do not move: one that waits for an answer that never comes throws and logs nothing. */
export class Progress {
  readonly #watched = new Set<{ name: string; lateAt: number }>();

  /** It is stalled when it has not moved for `limitMs`. */
  watch(name: string, limitMs: number): Watched {
    const watched = { name, lateAt: 0 };
    const moved = () => {
      watched.lateAt = performance.now() + limitMs;
    };
    moved();
    this.#watched.add(watched);
    return { moved, end: () => void this.#watched.delete(watched) };
  }

  async during<T>(name: string, limitMs: number, work: () => Promise<T>): Promise<T> {
    const watched = this.watch(name, limitMs);
    try {
      return await work();
    } finally {
      watched.end();
    }
  }

  stalled(): string[] {
    const now = performance.now();
    return [...new Set([...this.#watched].filter(({ lateAt }) => lateAt < now).map(({ name }) => name))];
  }
}
