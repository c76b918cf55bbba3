/** Requests that one process has in flight. A connection takes about 100 KB with what it leaves to the garbage collector. */
const MOST_REQUESTS = 1_500;
/** A team's share: endpoints that hang keep theirs for as long as a request may take. */
const TEAM_SHARE = 1 / 3;

/** The requests of a process, counted by team. */
export class RequestPlaces {
  #taken = 0;
  readonly #byTeam = new Map<string, number>();
  readonly #waiting = new Set<() => void>();

  /** Takes a place; `giveBack` must follow. @param again called when there may be one, if there is none now */
  take(teamId: string, again: () => void): boolean {
    const ofTeam = this.#byTeam.get(teamId) ?? 0;
    if (this.#taken >= MOST_REQUESTS || ofTeam >= MOST_REQUESTS * TEAM_SHARE) {
      this.#waiting.add(again);
      return false;
    }
    this.#taken++;
    this.#byTeam.set(teamId, ofTeam + 1);
    return true;
  }

  giveBack(teamId: string): void {
    this.#taken--;
    const ofTeam = (this.#byTeam.get(teamId) ?? 0) - 1;
    if (ofTeam > 0) this.#byTeam.set(teamId, ofTeam);
    else this.#byTeam.delete(teamId);
    for (const again of [...this.#waiting]) {
      if (this.#taken >= MOST_REQUESTS) return;
      this.#waiting.delete(again);
      again();
    }
  }
}
