/** Work that is watched: a loop, or a task that is under way. */
export interface Watched {
  /** A pass of the loop, or a step of the task, has succeeded. */
  moved(): void;
  /** It has ended, and is watched no more. */
  end(): void;
}

/**
 * Knows whether the loops and the tasks of a process move. One that waits for an answer that never comes throws nothing and
 * logs nothing: its process lives, and does nothing.
 */
export class Progress {
  readonly #watched = new Set<{ name: string; lateAt: number }>();

  /**
   * Watches a loop, or a task that is under way.
   * @param name as operators read it
   * @param limitMs it is stalled when it has not moved for this time
   */
  watch(name: string, limitMs: number): Watched {
    const watched = { name, lateAt: 0 };
    const moved = () => {
      watched.lateAt = performance.now() + limitMs;
    };
    moved();
    this.#watched.add(watched);
    return { moved, end: () => void this.#watched.delete(watched) };
  }

  /** Watches work until it ends. */
  async during<T>(name: string, limitMs: number, work: () => Promise<T>): Promise<T> {
    const watched = this.watch(name, limitMs);
    try {
      return await work();
    } finally {
      watched.end();
    }
  }

  /** The names of what has not moved in its time, each once. */
  stalled(): string[] {
    const now = performance.now();
    return [...new Set([...this.#watched].filter(({ lateAt }) => lateAt < now).map(({ name }) => name))];
  }
}
