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
/** Windows in a row without that gain after which it goes back: a machine may be busy for a moment. */
const FAILURES_TO_GO_BACK = 2;
/** Share of a window's messages during which connections may lack work; with more, the window is not compared. */
const SLACK = 0.1;
/**
 * A mail is meant to be settled so long after it was staged. Two commits take half of it, and the dialogue with a fast server a quarter.
 * A server that takes more mails in this time than may be SENDING would wait for recipients.
 */
const TURNAROUND_MS = 40;
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
 * at 20 ms of latency up to the account's limit, with a server in the same data centre up to a few. All times in ms.
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
  /** Messages in a millisecond, over the last window. */
  #rate = 0;
  #slack = 0;

  constructor(max: number) {
    this.#max = Math.max(1, max);
    this.#target = Math.min(START, this.#max);
  }

  /** Connections wanted now. */
  get target(): number {
    return this.#target;
  }

  /**
   * Messages to hand over at a time. One for each connection wanted, doubled until all batches that may be SENDING last a fast
   * server for `TURNAROUND_MS`, but never more than the account allows connections.
   */
  get batch(): number {
    let batch = this.#target;
    while (batch < this.#max && BATCHES_IN_FLIGHT * batch < this.#rate * TURNAROUND_MS) batch *= 2;
    return Math.min(batch, this.#max);
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
    // That of more connections than there will be.
    this.#rate = 0;
    this.#target = Math.min(this.#target, this.#serverLimit.connections);
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
    if (busy < this.#target || waiting === 0) this.#slack++;
    const elapsedMs = now - this.#windowStart;
    const needed = this.#target * (elapsedMs < MAX_WINDOW_MS ? MESSAGES_PER_CONNECTION : 1);
    if (elapsedMs < MIN_WINDOW_MS || this.#done < needed) return;
    this.#rate = this.#done / elapsedMs;
    // With connections that lack work or still open, the rate does not show whether more connections would raise it.
    if (this.#slack <= this.#done * SLACK) this.#compareRate(this.#rate, now);
    this.#restart(now);
  }

  #compareRate(rate: number, now: number): void {
    const before = this.#before;
    if (before && rate < before.rate * WORTHWHILE_GAIN) {
      this.#failures++;
      if (this.#failures < FAILURES_TO_GO_BACK) return;
      this.#target = before.target;
      this.#before = undefined;
      this.#holdUntil = now + this.#holdMs;
      this.#holdMs = Math.min(this.#holdMs * 2, MAX_HOLD_MS);
      return;
    }
    if (before) this.#holdMs = FIRST_HOLD_MS;
    const limit = now < this.#serverLimit.until ? Math.min(this.#max, this.#serverLimit.connections) : this.#max;
    this.#before = undefined;
    if (now < this.#holdUntil || this.#target >= limit) return;
    this.#before = { target: this.#target, rate };
    this.#failures = 0;
    this.#target = Math.min(limit, this.#target * 2);
  }

  #restart(now: number): void {
    this.#windowStart = now;
    this.#done = 0;
    this.#slack = 0;
  }
}
