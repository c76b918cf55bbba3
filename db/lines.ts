/** Idle lines that are kept at most, beside those that are in use. */
const MOST_IDLE = 256;

/**
 * What is under way and what waits, by name. Idle lines are kept until there are many: a `Map` that each request
 * empties and fills makes full collections frequent.
 */
export class Lines<Line> {
  #lines = new Map<string, Line>();
  readonly #begin: () => Line;
  readonly #isIdle: (line: Line) => boolean;
  #most = MOST_IDLE;

  constructor(begin: () => Line, isIdle: (line: Line) => boolean) {
    this.#begin = begin;
    this.#isIdle = isIdle;
  }

  of(name: string): Line {
    const known = this.#lines.get(name);
    if (known !== undefined) return known;
    if (this.#lines.size >= this.#most) {
      this.#lines = new Map([...this.#lines].filter(([, line]) => !this.#isIdle(line)));
      // Twice as many as are in use, so that each drop is paid by as many new lines.
      this.#most = Math.max(MOST_IDLE, 2 * this.#lines.size);
    }
    const line = this.#begin();
    this.#lines.set(name, line);
    return line;
  }

  get size(): number {
    return this.#lines.size;
  }
}
