/** An endpoint is busy when its next group begins so soon after the one before has ended, in ms. */
const SOON_MS = 1_000;
/** How long a group waits to be woken before it looks for itself: another process may have written deliveries. In ms. */
const LOOK_AGAIN_MS = 150;
/** Groups of a process that wait at once: each takes a place of its local activities. */
const MOST_WAITING = 100;
/** Endpoints that are remembered at most. */
const MOST_REMEMBERED = 10_000;

/** The endpoints of a process that are busy: their groups wait for further deliveries instead of ending. */
export class BusyEndpoints {
  /** When the latest group of an endpoint ended, by `performance.now()`; the latest is the last. */
  readonly #endedAt = new Map<string, number>();
  /** The group of an endpoint that waits, or will. */
  readonly #waits = new Map<string, Wait>();

  /**
   * Begins to watch for deliveries of an endpoint, if it is busy and no other group of it watches.
   * @returns undefined when the group should not wait for any; else `end` must follow
   */
  watch(webhookId: string): Wait | undefined {
    const endedAt = this.#endedAt.get(webhookId);
    const isBusy = endedAt !== undefined && performance.now() - endedAt < SOON_MS;
    if (!isBusy || this.#waits.has(webhookId) || this.#waits.size >= MOST_WAITING) return undefined;
    const wait = new Wait(() => this.#waits.delete(webhookId));
    this.#waits.set(webhookId, wait);
    return wait;
  }

  /** Notes that a group of an endpoint has ended. */
  noteEnd(webhookId: string): void {
    this.#endedAt.delete(webhookId);
    this.#endedAt.set(webhookId, performance.now());
    const [oldest] = this.#endedAt.keys();
    if (oldest !== undefined && this.#endedAt.size > MOST_REMEMBERED) this.#endedAt.delete(oldest);
  }

  /** Deliveries of these endpoints wait for a group. */
  wake(webhookIds: Iterable<string>): void {
    for (const webhookId of webhookIds) this.#waits.get(webhookId)?.wake();
  }
}

/** A group that waits for deliveries. */
class Wait {
  /** Ends the watch. */
  readonly end: () => void;
  #woken = Promise.withResolvers<void>();

  constructor(end: () => void) {
    this.end = end;
  }

  wake(): void {
    this.#woken.resolve();
  }

  /** To be called before the group looks for deliveries: those that come from then on end the next wait. */
  reset(): void {
    this.#woken = Promise.withResolvers();
  }

  /** Waits until deliveries have come since the latest `reset`, or may have. */
  async forDeliveries(): Promise<void> {
    const timer = setTimeout(() => this.wake(), LOOK_AGAIN_MS);
    await this.#woken.promise;
    clearTimeout(timer);
  }
}
