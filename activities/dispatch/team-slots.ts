/** How soon a slice that found no slot asks again, in milliseconds: at first, and at most. */
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 60_000;
/** Between two slices of a team that ask again: a thousand waiting sends must not flood Temporal. */
const SPACING_MS = 250;

interface Team {
  taken: number;
  /** When the last slice that was told to ask again does so, by `performance.now()`. */
  lastAskAt: number;
}

/** Lets each team have a few slices under way at once in this process, so that slow relays of one do not keep all slots. */
export class TeamSlots {
  readonly #most: number;
  readonly #teams = new Map<string, Team>();

  constructor(most: number) {
    this.#most = most;
  }

  /**
   * Runs a team's work, unless as many of the team are under way.
   * @param full is called instead, with the time after which to ask again
   */
  async run<T>(teamId: string, work: () => Promise<T>, full: (waitMs: number) => T): Promise<T> {
    const team = this.#teams.get(teamId) ?? { taken: 0, lastAskAt: 0 };
    if (team.taken >= this.#most) {
      const now = performance.now();
      const askAt = Math.max(now + FIRST_WAIT_MS, team.lastAskAt + SPACING_MS);
      team.lastAskAt = Math.min(askAt, now + LONGEST_WAIT_MS);
      return full(Math.ceil(team.lastAskAt - now));
    }
    team.taken++;
    this.#teams.set(teamId, team);
    try {
      return await work();
    } finally {
      if (--team.taken === 0) this.#teams.delete(teamId);
    }
  }
}
