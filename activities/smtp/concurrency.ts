/** Connections to begin with. Idle ones cost little; with few, each outcome is settled almost alone. */
const START = 32;
/** Shortest time over which a rate is measured. */
const MIN_WINDOW_MS = 50;
/** Fewest messages per connection in a rate; with fewer it is too rough to compare. */
const MESSAGES_PER_CONNECTION = 3;
/** A slow server's rate is measured after this time, even with fewer messages. */
const MAX_WINDOW_MS = 1_000;
/** Twice the connections are kept only if they raise the rate by at least this factor. */
const WORTHWHILE_GAIN = 1.15;
/** Compared windows in a row without that gain, after which they are closed again: a machine may be busy for a moment. */
const FAILURES_TO_CLOSE = 2;
/** Share of a window's messages at whose end something may be lacking: messages for the connections, or connections. */
const SLACK = 0.1;
/** Batches that may be SENDING: one is staged, one in flight, one not yet settled. */
export const BATCHES_IN_FLIGHT = 3;
const FIRST_HOLD_MS = 2_000;
const MAX_HOLD_MS = 60_000;
/** How long the number of connections at which the server refused another one counts as its limit. */
const SERVER_LIMIT_MS = 60_000;
/** The same where another one failed without a reply, which may be chance. It doubles with each such failure in a row. */
const FIRST_SUSPICION_MS = 1_000;

/**
 * How many connections raise the throughput. It doubles them while all are busy and the rate rises with their number:
 * at 20 ms of latency up to the account's limit, with a server in the same data centre up to a few. It also finds how many
 * messages must be handed over at a time to keep them busy while others are staged and settled. All times in ms.
 */
export class Concurrency {
  #max: number;
  #target: number;
  #serverLimit = { connections: Number.POSITIVE_INFINITY, until: 0 };
  #suspicionMs = FIRST_SUSPICION_MS;
  #before: { target: number; rate: number } | undefined;
  #failures = 0;
  #holdMs = FIRST_HOLD_MS;
  #holdUntil = 0;
  #windowStart = 0;
  #done = 0;
  /** Messages of the window at whose end none waited for a connection. */
  #lackedMessages = 0;
  /** Messages of the window at whose end others waited, and fewer connections were open than wanted. */
  #lackedConnections = 0;
  /** The fewest messages that waited at any time of the window. */
  #leastWaiting = Number.POSITIVE_INFINITY;
  #batch = 1;

  constructor(max: number) {
    this.#max = Math.max(1, max);
    this.#target = Math.min(START, this.#max);
  }

  /** Connections wanted now. */
  get target(): number {
    return this.#target;
  }

  /**
   * Messages to hand over at a time: one for each connection wanted, doubled while connections lack messages, but never more
   * than the account allows connections.
   */
  get batch(): number {
    return Math.min(Math.max(this.#batch, this.#target), this.#max);
  }

  setMax(max: number): void {
    this.#max = Math.max(1, max);
    this.#target = Math.min(this.#target, this.#max);
    this.#restart(0);
  }

  /** The server refused a further connection while `open` others work, or the connection failed without a reply. */
  refusedAbove(open: number, now: number, { replied }: { replied: boolean }): void {
    let { until } = this.#serverLimit;
    if (replied) until = now + SERVER_LIMIT_MS;
    else if (now >= until) {
      until = now + this.#suspicionMs;
      this.#suspicionMs = Math.min(this.#suspicionMs * 2, SERVER_LIMIT_MS);
    }
    this.#serverLimit = { connections: Math.max(1, open), until };
    this.#target = Math.min(this.#target, this.#serverLimit.connections);
    this.#batch = 1;
    this.#before = undefined;
    this.#restart(now);
  }

  /** `open` connections are logged in. More than seemed to be allowed: a login takes longer than a refusal. */
  admitted(open: number): void {
    if (open <= this.#serverLimit.connections) return;
    this.#serverLimit.connections = open;
    this.#suspicionMs = FIRST_SUSPICION_MS;
    this.#target = Math.max(this.#target, Math.min(open, this.#max));
  }

  /** A message has its outcome; `busy` connections, its own included, were at work, and `waiting` messages waited for one. */
  completed(now: number, busy: number, waiting: number): void {
    if (this.#windowStart === 0) this.#restart(now);
    this.#done++;
    if (waiting === 0) this.#lackedMessages++;
    else if (busy < this.#target) this.#lackedConnections++;
    this.#leastWaiting = Math.min(this.#leastWaiting, waiting);
    const elapsedMs = now - this.#windowStart;
    const needed = this.#target * (elapsedMs < MAX_WINDOW_MS ? MESSAGES_PER_CONNECTION : 1);
    if (elapsedMs < MIN_WINDOW_MS || this.#done < needed) return;
    const slack = this.#done * SLACK;
    const lackedMessages = this.#lackedMessages > slack;
    const mayGrow = this.batch < this.#max;
    if (lackedMessages && mayGrow) this.#batch = this.batch * 2;
    // More than a whole batch waited all the time: with half of it fewer rows may be SENDING, and connections stay busy.
    else if (this.#leastWaiting > this.batch) this.#batch = Math.ceil(this.batch / 2);
    const rate = this.#done / elapsedMs;
    // Where something was lacking, the rate does not show whether more connections would raise it. It does show that those
    // added last are of no use, once a batch can have no more messages.
    if (this.#lackedMessages + this.#lackedConnections <= slack) this.#addHelpful(rate, now);
    else if (lackedMessages && !mayGrow) this.#removeUnhelpful(rate, now);
    this.#restart(now);
  }

  /** Wants twice the connections, if those that were added last raised the rate and more are allowed. */
  #addHelpful(rate: number, now: number): void {
    if (this.#removeUnhelpful(rate, now)) return;
    if (this.#before) this.#holdMs = FIRST_HOLD_MS;
    const limit = now < this.#serverLimit.until ? Math.min(this.#max, this.#serverLimit.connections) : this.#max;
    this.#before = undefined;
    if (now < this.#holdUntil || this.#target >= limit) return;
    this.#before = { target: this.#target, rate };
    this.#failures = 0;
    this.#target = Math.min(limit, this.#target * 2);
  }

  /**
   * Wants as many connections as before those that were added last, if they did not raise the rate in several windows.
   * @returns whether they did not raise it in this one
   */
  #removeUnhelpful(rate: number, now: number): boolean {
    const before = this.#before;
    if (!before) return false;
    if (rate >= before.rate * WORTHWHILE_GAIN) {
      this.#failures = 0;
      return false;
    }
    this.#failures++;
    if (this.#failures < FAILURES_TO_CLOSE) return true;
    this.#target = before.target;
    this.#before = undefined;
    this.#holdUntil = now + this.#holdMs;
    this.#holdMs = Math.min(this.#holdMs * 2, MAX_HOLD_MS);
    return true;
  }

  #restart(now: number): void {
    this.#windowStart = now;
    this.#done = 0;
    this.#lackedMessages = 0;
    this.#lackedConnections = 0;
    this.#leastWaiting = Number.POSITIVE_INFINITY;
  }
}
