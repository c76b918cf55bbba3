/** Work of one team that is under way, and what waits for it to end. */
interface Line {
  running: number;
  waiting: (() => void)[];
}

/**
 * Runs a few works of each team at once; more of the same team wait in order of arrival. So many large pages for one team
 * leave connections to Postgres, and time of the event loop, to the others.
 */
export class Turns {
  readonly #atOnce: number;
  readonly #lines = new Map<string, Line>();

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  async run<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    const line = this.#lines.get(teamId) ?? { running: 0, waiting: [] };
    this.#lines.set(teamId, line);
    if (line.running < this.#atOnce) line.running++;
    // A work that ends hands its place on.
    else await new Promise<void>((resolve) => line.waiting.push(resolve));
    try {
      return await work();
    } finally {
      const next = line.waiting.shift();
      if (next) next();
      else if (--line.running === 0) this.#lines.delete(teamId);
    }
  }
}
