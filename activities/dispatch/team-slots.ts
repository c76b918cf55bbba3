/** When a slice that found no slot asks again. */
const FIRST_WAIT_MS = 2_000;
const LONGEST_WAIT_MS = 60_000;
/** Between two slices of a team that ask again: a thousand waiting sends must not flood Temporal. */
const SPACING_MS = 250;

/** Filling a message that takes less time is not counted: an ordinary one takes about 0.02 ms. */
const COUNTED_FROM_MS = 0.5;
/** For so many other teams a team rests at most: it may be their relays that they wait for. */
const MOST_OTHERS = 4;

interface Team {
  taken: number;
  lastAskAt: number;
}

/**
 * A few slices of a team under way at once, so that its slow relays do not keep all slots; and a fair share of the
 * thread on which all messages are filled.
 */
export class TeamSlots {
  readonly #most: number;
  readonly #places: number;
  #taken = 0;
  readonly #teams = new Map<string, Team>();
  /** By `performance.now()`; also after its last slice has ended. */
  readonly #restsUntil = new Map<string, number>();

  /** @param places activities that this process runs at once */
  constructor(most: number, places: number) {
    this.#most = most;
    this.#places = places;
  }

  /** @param full is called, when the team's slots are taken, with the time after which to ask again */
  async run<T>(teamId: string, work: () => Promise<T>, full: (waitMs: number) => T): Promise<T> {
    const team = this.#teams.get(teamId) ?? { taken: 0, lastAskAt: 0 };
    if (team.taken >= this.#most) {
      const now = performance.now();
      const askAt = Math.max(now + FIRST_WAIT_MS, team.lastAskAt + SPACING_MS);
      team.lastAskAt = Math.min(askAt, now + LONGEST_WAIT_MS);
      return full(Math.ceil(team.lastAskAt - now));
    }
    team.taken++;
    this.#taken++;
    this.#teams.set(teamId, team);
    try {
      return await work();
    } finally {
      this.#taken--;
      if (--team.taken === 0) this.#teams.delete(teamId);
    }
  }

  /** Whether no slice waits for this team's place. One place is left to an activity that is no slice. */
  hasRoom(teamId: string): boolean {
    return this.#taken + 1 < this.#places && (this.#teams.get(teamId)?.taken ?? 0) < this.#most;
  }

  restMs(teamId: string): number {
    const ms = (this.#restsUntil.get(teamId) ?? 0) - performance.now();
    if (ms > 0) return ms;
    this.#restsUntil.delete(teamId);
    return 0;
  }

  /** Makes a team that filled a costly message rest: as long as that took, for each other team with slices under way. */
  countFill(teamId: string, tookMs: number): void {
    const others = Math.min(MOST_OTHERS, this.#teams.size - 1);
    if (others <= 0 || tookMs < COUNTED_FROM_MS) return;
    this.#restsUntil.set(teamId, performance.now() + this.restMs(teamId) + tookMs * others);
  }
}
