import { withoutSpan } from "../../config/tracing.ts";
import type { FilledMessage } from "../../domain/mail/message.ts";
import {
  type AccountFailure,
  type MailOutcome,
  NO_ANSWER,
  NOT_ATTEMPTED,
  SMTPUTF8_UNSUPPORTED,
  UNSENDABLE,
} from "../../domain/mail/outcome.ts";
import { mostInFlight } from "../../domain/sends/ledger/account-capacity.ts";
import { elapsedMs } from "../../lib/elapsed.ts";
import { Drain, type DrainOptions, type Job, type JobOwner } from "./drain.ts";
import { openSession, type SmtpAccount } from "./login.ts";
import { OpeningPace } from "./opening-pace.ts";
import { SmtpSession } from "./session.ts";

export interface SmtpPoolOptions extends SmtpAccount {
  maxConnections: number;
  /** Messages after which a connection is replaced; 1,000 by default */
  messagesPerConnection?: number | undefined;
  /** Counts the time of filling messages, and says when the next one may be filled; without it, at any time */
  thread?: ThreadShare | undefined;
  /** Called when the first connection has logged in, and once for each refusal while none is logged in. */
  onAccess?: ((refusal?: AccountFailure) => void) | undefined;
}

export interface ThreadShare {
  /** How long no message may be filled, in milliseconds. */
  restMs(): number;
  countFill(tookMs: number): void;
}

const DEFAULT_MESSAGES_PER_CONNECTION = 1_000;
const SWEEP_MS = 250;
/** A message whose connection broke before the dot is sent once more over another; after that it is deferred. */
const MAX_ATTEMPTS = 2;
/** Sessions in a row that ended at their first message after which the server counts as refusing them. */
const FRUITLESS_SESSIONS = 10;

/** One batch is staged, one is in flight, and one is not settled yet. */
const BATCHES_IN_FLIGHT = 3;
/** A batch holds the messages that the server takes in this time. */
const BATCH_MS = 100;

export class SmtpPool {
  readonly #options: SmtpPoolOptions;
  readonly #pace = new OpeningPace();
  readonly #opening = new Set<AbortController>();
  /** That are logged in. */
  readonly #sessions = new Set<SmtpSession>();
  /** Last in, first out, so that the server closes a connection that is not needed. */
  readonly #idle: SmtpSession[] = [];
  readonly #drains = new Set<JobOwner>();
  #waiting: Job[] = [];
  #fruitless = 0;
  /** Since the first of its connections logged in. */
  #hasMailed = false;
  /** `elapsedMs()` when the last of the accepted mails began. */
  #acceptedBegunAt: number | undefined;
  /** `onAccess` knows of the last refusal. */
  #isRefusalReported = true;
  #maxConnections: number;
  /** Messages that got an outcome since `#countedFrom`, and in the last time of `BATCH_MS` before it. */
  #answeredNow = 0;
  #answeredBefore = 0;
  #countedFrom = 0;
  #closed = false;
  /** Its last connection has ended, after the close. */
  readonly #emptied = Promise.withResolvers<void>();
  #sweep: NodeJS.Timeout | undefined;
  #rest: NodeJS.Timeout | undefined;

  constructor(options: SmtpPoolOptions) {
    this.#options = options;
    this.#maxConnections = options.maxConnections;
  }

  get mostInFlight(): number {
    return mostInFlight(this.#maxConnections);
  }

  /** Messages to hand over at a time: one per connection, more where the server takes more at once than it is given. */
  get batch(): number {
    this.#countAnswered(0);
    const most = Math.floor(this.mostInFlight / BATCHES_IN_FLIGHT);
    return Math.min(Math.max(this.#usable, this.#answeredBefore), most);
  }

  /** Allowed connections that the server takes: rows staged for more would leave long after a pause of their send. */
  get #usable(): number {
    return Math.min(this.#maxConnections, this.#pace.most);
  }

  get open(): number {
    return this.#sessions.size + this.#opening.size;
  }

  get isLoggedIn(): boolean {
    return this.#sessions.size > 0;
  }

  get late(): number {
    return [...this.#sessions].filter(({ isLate }) => isLate).length;
  }

  /** Lets the next message open a connection, although one was refused a moment ago. */
  tryNow(): void {
    this.#pace.endPause();
  }

  /** Connections above the limit close as they become free. */
  setConnections(maxConnections: number): void {
    this.#maxConnections = maxConnections;
    const tooMany = Math.max(0, this.open - maxConnections);
    for (const session of this.#idle.splice(0, tooMany)) session.quit();
    this.#pump();
  }

  /**
   * Sends the items of `batches`, with no barrier between them: the next one is asked for as soon as fewer messages
   * wait than there are connections. It ends when every item has had its outcome. Once it is stopped or the account has
   * failed, items that were not begun get `not_attempted`.
   */
  drain<T>(batches: AsyncIterable<readonly T[]>, options: DrainOptions<T>): Drain<T> {
    return new Drain(batches, options, {
      wanted: () => this.#usable,
      join: (owner) => {
        this.#drains.add(owner);
        if (this.#closed) owner.stop({ ended: "stopped" });
      },
      leave: (owner) => this.#drains.delete(owner),
      add: (jobs) => this.#add(jobs),
      withdraw: (owner) => this.#withdraw((job) => job.owner === owner),
    });
  }

  /**
   * Begins no more messages, finishes those in flight for up to `graceMs`, then cuts them off, those with a late dot at
   * once.
   */
  async close({ graceMs }: { graceMs: number }): Promise<void> {
    this.#closed = true;
    for (const drain of this.#drains) drain.stop({ ended: "stopped" });
    for (const opening of this.#opening) opening.abort();
    for (const session of this.#sessions) {
      if (session.isLate) session.destroy();
      else if (session.inFlight === 0) session.quit();
    }
    if (this.open === 0) return;
    const cut = setTimeout(() => {
      for (const session of this.#sessions) session.destroy();
    }, graceMs);
    await this.#emptied.promise;
    clearTimeout(cut);
  }

  #add(jobs: readonly Job[]): void {
    for (const job of jobs) {
      job.owner.waiting++;
      this.#waiting.push(job);
    }
    this.#pump();
  }

  #withdraw(which: (job: Job) => boolean): Job[] {
    const withdrawn = this.#waiting.filter(which);
    this.#waiting = this.#waiting.filter((job) => !which(job));
    for (const job of withdrawn) job.owner.waiting--;
    return withdrawn;
  }

  #pump(): void {
    while (this.#waiting.length > 0 && !this.#rests()) {
      const session = this.#idle.pop();
      if (session === undefined) break;
      this.#use(session);
    }
    this.#openForWaiting();
  }

  /** Those that wait are looked at again when one may be filled. */
  #rests(): boolean {
    const ms = this.#options.thread?.restMs() ?? 0;
    if (ms === 0) return false;
    this.#rest ??= setTimeout(() => {
      this.#rest = undefined;
      this.#pump();
    }, ms);
    return true;
  }

  #openForWaiting(): void {
    if (this.#closed || this.#waiting.length === 0 || this.#idle.length > 0) return;
    const now = performance.now();
    const refusal = this.isLoggedIn ? undefined : this.#pace.refusalAt(now);
    if (refusal) {
      this.#failWaiting(refusal);
      return;
    }
    const openable = this.#pace.openable(now, this.#sessions.size, this.#opening.size);
    const room = Math.min(openable, this.#maxConnections - this.open, this.#waiting.length - this.#opening.size);
    for (let i = 0; i < room; i++) void this.#open();
  }

  async #open(): Promise<void> {
    const opening = new AbortController();
    this.#opening.add(opening);
    this.#sweep ??= withoutSpan(() => setInterval(() => this.#sweepSessions(), SWEEP_MS).unref());
    const opened = await openSession(this.#options, opening.signal);
    this.#opening.delete(opening);
    if (opened instanceof SmtpSession) this.#opened(opened);
    else this.#openFailed(opened);
  }

  #opened(session: SmtpSession): void {
    if (this.#sessions.size === 0) this.#hasMailed = false;
    this.#sessions.add(session);
    session.onBody = () => this.#follow(session);
    session.onEnd = () => this.#ended(session);
    // Sessions that end at their first message are refusals too, only later.
    if (this.#fruitless < FRUITLESS_SESSIONS) {
      this.#pace.recordLogin(this.#sessions.size);
      if (this.#sessions.size === 1) this.#options.onAccess?.();
    }
    this.#use(session);
    this.#openForWaiting();
  }

  #openFailed(failure: AccountFailure): void {
    // Else the pool itself ended it.
    if (!this.#closed) {
      this.#refused(failure, this.#sessions.size);
      // While other connections work, this was one more than the server allows, or the first to be refused.
      if (!this.isLoggedIn) this.#failWaiting(failure);
    }
    this.#closedOne();
  }

  /** @param working connections that say how many the server allows */
  #refused(failure: AccountFailure, working: number): void {
    if (this.#pace.recordRefusal(failure, performance.now(), working)) this.#isRefusalReported = false;
  }

  /** No connection is logged in, and none may be opened now: the account cannot mail. */
  #failWaiting(refusal: AccountFailure): void {
    if (!this.#isRefusalReported) this.#options.onAccess?.(refusal);
    this.#isRefusalReported = true;
    for (const job of this.#withdraw(() => true)) job.settle(refusal);
  }

  #use(session: SmtpSession): void {
    if (session.ended) return; // #ended follows
    if (this.#isSpent(session)) {
      session.quit();
      return;
    }
    if (!this.#rests()) {
      const job = this.#waiting.shift();
      if (job !== undefined) {
        job.owner.waiting--;
        job.owner.askIfShort();
        // A message that cannot be composed may have taken its whole budget: others get their turn before the next.
        if (!this.#begin(session, job)) setImmediate(() => this.#use(session));
        return;
      }
    }
    this.#idle.push(session);
  }

  /** While a body leaves, the next message's envelope leaves in the same write. */
  #follow(session: SmtpSession): void {
    const [job] = this.#waiting;
    if (job === undefined || job.isAlone) return;
    if (this.#isSpent(session) || this.#rests()) return;
    this.#waiting.shift();
    job.owner.waiting--;
    job.owner.askIfShort();
    this.#begin(session, job);
  }

  #isSpent({ messages }: SmtpSession): boolean {
    const most = this.#options.messagesPerConnection ?? DEFAULT_MESSAGES_PER_CONNECTION;
    return messages >= most || this.#closed || this.open > this.#maxConnections;
  }

  /** @returns false when the message cannot be sent: it has its outcome then */
  #begin(session: SmtpSession, job: Job): boolean {
    if (!job.mayBegin()) {
      job.settle(NOT_ATTEMPTED);
      return false;
    }
    let filled: FilledMessage;
    const beganAt = performance.now();
    try {
      filled = job.message();
    } catch {
      job.settle(UNSENDABLE);
      return false;
    } finally {
      this.#options.thread?.countFill(performance.now() - beganAt);
    }
    if (filled.envelope.smtpUtf8 && !session.knowsSmtpUtf8) {
      job.settle(SMTPUTF8_UNSUPPORTED);
      return false;
    }
    const isFollower = session.inFlight > 0;
    const isFirst = session.messages === 0;
    const begunAt = elapsedMs();
    try {
      session.send(filled, {
        mayProceed: () => !isFollower || this.#mayMail(job),
        done: (outcome) => this.#answered(session, job, outcome, isFirst, begunAt),
        late: () => job.settle(NO_ANSWER),
        takenBack: () => this.#takenBack(session, job),
      });
    } catch {
      job.settle(UNSENDABLE);
      return false;
    }
    job.attempts++;
    return true;
  }

  #answered(session: SmtpSession, job: Job, outcome: MailOutcome, isFirst: boolean, begunAt: number): void {
    this.#countAnswered(1);
    const mayRetry = outcome.outcome === "deferred" && outcome.retry;
    if (!mayRetry) this.#fruitless = 0;
    else if (isFirst && ++this.#fruitless >= FRUITLESS_SESSIONS) {
      this.#refused({ ...outcome, outcome: "account_failure", temporary: true }, 0);
    }
    if (outcome.outcome === "sent") {
      this.#hasMailed = true;
      this.#acceptedBegunAt = Math.max(this.#acceptedBegunAt ?? 0, begunAt);
      outcome.begunAt = begunAt;
    } else if ("refusal" in outcome && outcome.refusal) {
      const facts = { at: elapsedMs(), isFirstOfLogin: !this.#hasMailed };
      Object.assign(
        outcome.refusal,
        facts,
        this.#acceptedBegunAt !== undefined && { acceptedBegunAt: this.#acceptedBegunAt },
      );
    }
    if (mayRetry && job.attempts < MAX_ATTEMPTS && !job.owner.stopped) this.#putBack(job);
    else job.settle(outcome);
    this.#goOn(session);
  }

  #countAnswered(messages: number): void {
    const elapsedMs = performance.now() - this.#countedFrom;
    if (elapsedMs >= BATCH_MS) {
      this.#answeredBefore = Math.round((this.#answeredNow * BATCH_MS) / elapsedMs);
      this.#answeredNow = 0;
      this.#countedFrom += elapsedMs;
    }
    this.#answeredNow += messages;
  }

  #mayMail(job: Job): boolean {
    return !job.owner.stopped && !this.#closed && job.mayBegin();
  }

  /** Nothing of the message was mailed. It is no fault of its own, so it does not count as an attempt. */
  #takenBack(session: SmtpSession, job: Job): void {
    if (!this.#mayMail(job)) job.settle(NOT_ATTEMPTED);
    else {
      job.attempts--;
      job.isAlone = true;
      this.#putBack(job);
    }
    this.#goOn(session);
  }

  #putBack(job: Job): void {
    job.owner.waiting++;
    this.#waiting.unshift(job);
  }

  #goOn(session: SmtpSession): void {
    if (session.inFlight === 0) this.#use(session);
    this.#pump();
  }

  #ended(session: SmtpSession): void {
    this.#sessions.delete(session);
    const index = this.#idle.indexOf(session);
    if (index >= 0) this.#idle.splice(index, 1);
    this.#closedOne();
  }

  #closedOne(): void {
    if (this.open === 0) {
      clearInterval(this.#sweep);
      this.#sweep = undefined;
      if (this.#closed) this.#emptied.resolve();
    }
    this.#pump();
  }

  #sweepSessions(): void {
    for (const session of this.#sessions) session.checkTime();
    // A pause after a refusal may have ended.
    this.#openForWaiting();
  }
}
