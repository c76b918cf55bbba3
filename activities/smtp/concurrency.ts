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
/** After so many windows in a row without that gain the added connections are closed: a machine may be busy for a moment. */
const WINDOWS_WITHOUT_GAIN = 2;
/** Where more than this share of a window's messages ended in a lack of messages or connections, its rate is not compared. */
const MOST_LACKING = 0.1;
/** Batches that may be SENDING: one is staged, one in flight, one not yet settled. */
export const BATCHES_IN_FLIGHT = 3;
const FIRST_HOLD_MS = 2_000;
const MAX_HOLD_MS = 60_000;
/** How long the number of connections at which the server refused another one counts as its limit. */
const SERVER_LIMIT_MS = 60_000;
/** The same where another one failed without a reply, which may be chance. It doubles with each such failure in a row. */
const FIRST_SUSPICION_MS = 1_000;

/** The state of a pool when a message got its outcome. */
export interface Load {
  /** Connections at work, that of the message included. */
  busy: number;
  /** Messages that waited for a connection. */
  waiting: number;
  /** A further batch was being staged. */
  isStaging: boolean;
}

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
  /** The number of connections, and their rate, before the last ones were added; until these are kept or closed. */
  #before: { target: number; rate: number } | undefined;
  #withoutGain = 0;
  #holdMs = FIRST_HOLD_MS;
  #holdUntil = 0;
  /** The batch that a lack of messages led to. It counts where it is larger than the number of connections wanted. */
  #grownBatch = 1;
  #windowStart = 0;
  #done = 0;
  /** Messages of the window at whose end none waited for a connection, while the next batch was staged. */
  #lackedMessages = 0;
  /** The other messages of the window at whose end none waited, or fewer connections were at work than wanted. */
  #incomparable = 0;
  /** The fewest messages that waited at any time of the window. */
  #leastWaiting = Number.POSITIVE_INFINITY;

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
    return Math.min(Math.max(this.#grownBatch, this.#target), this.#max);
  }

  setMax(max: number): void {
    this.#max = Math.max(1, max);
    this.#target = Math.min(this.#target, this.#max);
    this.#before = undefined;
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
    this.#grownBatch = 1;
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

  /** A message has its outcome. */
  completed(now: number, { busy, waiting, isStaging }: Load): void {
    if (this.#windowStart === 0) this.#restart(now);
    this.#done++;
    if (waiting === 0 && isStaging) this.#lackedMessages++;
    else if (waiting === 0 || busy < this.#target) this.#incomparable++;
    this.#leastWaiting = Math.min(this.#leastWaiting, waiting);
    const elapsedMs = now - this.#windowStart;
    const needed = this.#target * (elapsedMs < MAX_WINDOW_MS ? MESSAGES_PER_CONNECTION : 1);
    if (elapsedMs < MIN_WINDOW_MS || this.#done < needed) return;
    const mayGrow = this.batch < this.#max;
    const mostLacking = this.#done * MOST_LACKING;
    const lacksMessages = this.#lackedMessages > mostLacking;
    const rate = this.#done / elapsedMs;
    if (this.#lackedMessages + this.#incomparable <= mostLacking) this.#adjustConnections(rate, now);
    // With the largest batch, a rate that is limited by a lack of messages shows that the connections added last are of no use.
    else if (lacksMessages && !mayGrow && this.#lacksGain(rate)) this.#closeAdded(now);
    this.#adjustBatch(lacksMessages);
    this.#restart(now);
  }

  #adjustBatch(lacksMessages: boolean): void {
    if (lacksMessages) this.#grownBatch = Math.min(this.batch * 2, this.#max);
    // Half of this batch would have been enough, and with it fewer rows are SENDING.
    else if (this.#leastWaiting >= this.batch / 2) this.#grownBatch = Math.ceil(this.#grownBatch / 2);
  }

  /** Wants twice the connections, if those that were added last raised the rate and more are allowed. */
  #adjustConnections(rate: number, now: number): void {
    if (this.#lacksGain(rate)) {
      this.#closeAdded(now);
      return;
    }
    if (this.#before) this.#holdMs = FIRST_HOLD_MS;
    const limit = now < this.#serverLimit.until ? Math.min(this.#max, this.#serverLimit.connections) : this.#max;
    this.#before = undefined;
    if (now < this.#holdUntil || this.#target >= limit) return;
    this.#before = { target: this.#target, rate };
    this.#target = Math.min(limit, this.#target * 2);
  }

  /** Whether the connections that were added last did not raise the rate in this window. Counts such windows in a row. */
  #lacksGain(rate: number): boolean {
    const lacksGain = this.#before !== undefined && rate < this.#before.rate * WORTHWHILE_GAIN;
    this.#withoutGain = lacksGain ? this.#withoutGain + 1 : 0;
    return lacksGain;
  }

  /** Wants as many connections as before those that were added last, after enough windows without gain. */
  #closeAdded(now: number): void {
    if (!this.#before || this.#withoutGain < WINDOWS_WITHOUT_GAIN) return;
    this.#target = this.#before.target;
    this.#before = undefined;
    this.#holdUntil = now + this.#holdMs;
    this.#holdMs = Math.min(this.#holdMs * 2, MAX_HOLD_MS);
  }

  #restart(now: number): void {
    this.#windowStart = now;
    this.#done = 0;
    this.#lackedMessages = 0;
    this.#incomparable = 0;
    this.#leastWaiting = Number.POSITIVE_INFINITY;
  }
}
