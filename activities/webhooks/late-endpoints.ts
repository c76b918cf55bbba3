/** Endpoints that are remembered at most. */
const MOST_REMEMBERED = 10_000;
/**
 * Requests beyond the first 16 of each group that the late endpoints of a team have in flight at most. While no other team sends,
 * a team may have 840 of the requests of a process, and the first 16 of 24 groups are 384: late endpoints leave them to the
 * others. Beside other teams it has fewer.
 */
const MOST_LATE_REQUESTS = 450;

/** The endpoints of a process that answer late, and the further requests that their groups have in flight for that. */
export class LateEndpoints {
  readonly #late = new Set<string>();
  /** Further requests by team. */
  readonly #requests = new Map<string, number>();
  readonly #isProcessBusy: () => boolean;

  /** @param isProcessBusy whether this process would read an answer late, however early it came */
  constructor(isProcessBusy: () => boolean) {
    this.#isProcessBusy = isProcessBusy;
  }

  /** Whether the latest success of an endpoint was late. */
  isLate(webhookId: string): boolean {
    return this.#late.has(webhookId);
  }

  /** Notes how an endpoint answered. While this process is busy that says nothing about the endpoint. */
  note(webhookId: string, isLate: boolean): void {
    if (!isLate) this.#late.delete(webhookId);
    else if (this.#late.size < MOST_REMEMBERED && !this.#isProcessBusy()) this.#late.add(webhookId);
  }

  /**
   * Takes the place of one more request of a team; `giveBack` must follow.
   * @returns false when its late endpoints have `MOST_LATE_REQUESTS` already, or this process is busy
   */
  take(teamId: string): boolean {
    const taken = this.#requests.get(teamId) ?? 0;
    if (taken >= MOST_LATE_REQUESTS || this.#isProcessBusy()) return false;
    this.#requests.set(teamId, taken + 1);
    return true;
  }

  giveBack(teamId: string): void {
    const taken = (this.#requests.get(teamId) ?? 0) - 1;
    if (taken > 0) this.#requests.set(teamId, taken);
    else this.#requests.delete(teamId);
  }
}
