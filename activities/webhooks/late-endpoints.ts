/** Endpoints that are remembered at most. */
const MOST_REMEMBERED = 10_000;
/** Requests beyond the first ones of each group that an endpoint has in flight at most: its team may have 666. */
const MOST_REQUESTS = 450;

/** The endpoints of a process that answer late, and the further requests that their groups have in flight for that. */
export class LateEndpoints {
  readonly #late = new Set<string>();
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
   * Takes the place of one more request; `giveBack` must follow.
   * @returns false when the endpoint has too many, or this process is busy
   */
  take(webhookId: string): boolean {
    const taken = this.#requests.get(webhookId) ?? 0;
    if (taken >= MOST_REQUESTS || this.#isProcessBusy()) return false;
    this.#requests.set(webhookId, taken + 1);
    return true;
  }

  giveBack(webhookId: string): void {
    const taken = (this.#requests.get(webhookId) ?? 0) - 1;
    if (taken > 0) this.#requests.set(webhookId, taken);
    else this.#requests.delete(webhookId);
  }
}
