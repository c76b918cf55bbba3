import { setTimeout as delay } from "node:timers/promises";
import type { EntityManager } from "../../db/orm.ts";
import type { Hmac } from "../../domain/hmac.ts";
import { type AttemptOutcome, areSuccesses, settleAttempts } from "../../domain/webhooks/attempts.ts";
import { type Answer, type ClassifiedAnswer, classifyAnswer, classifyTest } from "../../domain/webhooks/classify.ts";
import { deliveryHeaders } from "../../domain/webhooks/delivery-headers.ts";
import { type EndpointChange, FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import type { CustomHeaders } from "../../domain/webhooks/headers.ts";
import type { Destination, DueDelivery } from "../../domain/webhooks/open-attempt.ts";
import { renderEvent } from "../../domain/webhooks/payload.ts";
import { openHeaders, openSecret } from "../../domain/webhooks/secrets.ts";
import { signerOf } from "../../domain/webhooks/signature.ts";
import type { ActivityDeps } from "../deps.ts";
import type { DeliveryClient, DeliveryRequest } from "./http-client.ts";
import type { LateEndpoints } from "./late-endpoints.ts";
import type { SharedPlaces } from "./shared-places.ts";
import type { SuccessWriter } from "./success-writer.ts";

/** Requests that one group has in flight at once. */
export const REQUESTS = 16;
/** The same at an endpoint that answers late, as far as `LateEndpoints` has places for them. */
const REQUESTS_WHILE_SLOW = 100;
/** The same while none of the group has arrived yet, at an endpoint that was not late before: it may have just died. */
const REQUESTS_BEFORE_SUCCESS = 50;
/** An endpoint answers late when its requests take longer than this, in ms. */
const SLOW_MS = 500;
/** Answers whose outcomes may be kept before they are written. A crash repeats their requests and those in flight. */
const MOST_UNSETTLED = 16;
/** How long fewer outcomes are kept at most. */
const SETTLE_EVERY_MS = 500;
/** How long outcomes are kept for a database that is away, and how often it is tried. */
const SETTLE_FOR_MS = 20_000;
const SETTLE_AGAIN_MS = 250;

/** Deliveries by the outcome that ended them. */
export interface Counts {
  succeeded: number;
  failed: number;
  blocked: number;
}

interface Deps extends Pick<ActivityDeps, "vault" | "stopping" | "countAttempts" | "log"> {
  client: Pick<DeliveryClient, "post">;
  /** Requests that this process may have in flight. */
  requests: SharedPlaces;
  /** Connections to Postgres. */
  connections: SharedPlaces;
  successes: SuccessWriter;
  lateEndpoints: LateEndpoints;
}

/** How an attempt treats the deliveries that fail in it. */
interface Retries {
  /** Until the next attempt, in ms. */
  retryInMs: number;
  /** No attempt follows. */
  isLast: boolean;
  isProbe: boolean;
}

/** The part of an attempt that one activity makes: several requests at a time, their outcomes written as they come. */
export class AttemptSlice {
  readonly #deps: Deps;
  readonly #em: EntityManager;
  readonly #teamId: string;
  readonly #destination: Destination;
  readonly #retries: Retries;
  readonly #signers: Hmac[];
  /** Identifies this slice in `SuccessWriter`. */
  readonly #writer = Symbol();
  readonly #customHeaders: CustomHeaders;
  #unsettled: ClassifiedAnswer[] = [];
  /** Outcomes that are being written. */
  #settling = 0;
  #writing: Promise<void> = Promise.resolve();
  /** The next writing, while the one before it is under way. */
  #nextWriting: Promise<void> | undefined;
  /** Requests that wait for their answer. */
  #inFlight = 0;
  /** Requests that were answered since the last look at how fast that is. */
  #answered = 0;
  #hasSucceeded = false;
  /** Aborted once the endpoint is known to be deleted: nothing more is sent to it. */
  readonly #gone = new AbortController();
  /** The endpoint is steady, as far as this slice knows. */
  #isSteady: boolean;
  /** The longest wait so far for the next attempt. */
  #waitMs = 0;
  /** Answers in a row after which their delivery is to be tried again. */
  #failuresInRow = 0;
  /** Deliveries that it was given. */
  #given = 0;

  readonly counts: Counts = { succeeded: 0, failed: 0, blocked: 0 };
  /** Why the latest delivery that is tried again failed. */
  reason = "";

  constructor(deps: Deps, em: EntityManager, teamId: string, destination: Destination, retries: Retries) {
    this.#deps = deps;
    this.#em = em;
    this.#teamId = teamId;
    this.#destination = destination;
    this.#retries = retries;
    this.#isSteady = destination.isSteady;
    const { vault } = deps;
    const { webhookId, encryptedSecret, previousEncryptedSecret, encryptedHeaders } = destination;
    this.#signers = [encryptedSecret, previousEncryptedSecret]
      .filter((sealed) => sealed !== null)
      .map((sealed) => signerOf(openSecret(vault, webhookId, sealed)));
    this.#customHeaders = openHeaders(vault, webhookId, encryptedHeaders);
  }

  /** Whether all deliveries so far have arrived, none of the latest late. */
  get isSwift(): boolean {
    return (
      !this.#gone.signal.aborted &&
      this.counts.succeeded === this.#given &&
      !this.#deps.lateEndpoints.isLate(this.#destination.webhookId)
    );
  }

  /**
   * Attempts deliveries. It may be called again, with others, once it has returned.
   * @param beginForMs no request begins later
   * @returns a fault of this process that kept some requests from being sent; all other outcomes are written
   */
  async send(due: readonly DueDelivery[], beginForMs: number): Promise<{ reason: unknown } | undefined> {
    this.#given += due.length;
    const queue = due[Symbol.iterator]();
    const begin = new AbortController();
    const beginUntil = performance.now() + beginForMs;
    const endBegin = () => begin.abort();
    const timer = setTimeout(endBegin, beginForMs);
    const ends = [this.#deps.stopping, this.#gone.signal];
    for (const end of ends) {
      end.addEventListener("abort", endBegin);
      if (end.aborted) endBegin();
    }
    // A fault of this process in one lane must not cost the others their outcomes.
    let fault: { reason: unknown } | undefined;
    const lanes: Promise<void>[] = [];
    const { webhookId, health } = this.#destination;
    const { lateEndpoints } = this.#deps;
    // Not p-limit: when time is up a lane ends, and the rest of the queue stays for the next slice.
    const openLane = (end?: () => void) => {
      const lane = this.#attemptEach(queue, begin.signal, beginUntil).catch((reason) => {
        fault ??= { reason };
      });
      lanes.push(lane.finally(end));
    };
    const widen = () => {
      const isKnownLate = this.#hasSucceeded || lateEndpoints.isLate(webhookId);
      const most = Math.min(isKnownLate ? REQUESTS_WHILE_SLOW : REQUESTS_BEFORE_SUCCESS, due.length);
      while (lanes.length < most && lateEndpoints.take(this.#teamId))
        openLane(() => lateEndpoints.giveBack(this.#teamId));
    };
    while (lanes.length < Math.min(REQUESTS, due.length)) openLane();
    if (health === "working" && lateEndpoints.isLate(webhookId)) widen();
    const widening = setInterval(() => {
      if (this.#isSlow(lanes.length)) widen();
      this.#answered = 0;
    }, SLOW_MS);
    const settling = setInterval(() => void this.#settleSoon(), SETTLE_EVERY_MS);
    // The loop also waits for lanes that are opened while it runs.
    for (const lane of lanes) await lane;
    clearInterval(widening);
    clearInterval(settling);
    clearTimeout(timer);
    for (const end of ends) end.removeEventListener("abort", endBegin);
    await this.#settleAll();
    return fault;
  }

  /** Attempts the next delivery of the queue, one after the other, until there is none or no request may begin any more. */
  async #attemptEach(queue: Iterable<DueDelivery>, signal: AbortSignal, beginUntil: number): Promise<void> {
    for (const delivery of queue) {
      // A process that was frozen reads the answers that came meanwhile before its timers run.
      if (performance.now() >= beginUntil) return;
      // Not in one expression: `#unsettled` may be another array once the answer is here.
      const answer = await this.#request(delivery, signal);
      if (!answer) return;
      const classified = delivery.isTest
        ? classifyTest(delivery.id, answer)
        : classifyAnswer(delivery.id, answer, this.#retries.isLast);
      this.#unsettled.push(classified);
      this.#answered++;
      const { isTest, status, durationMs } = classified.outcome;
      if (status === "SUCCEEDED") this.#deps.lateEndpoints.note(this.#destination.webhookId, durationMs > SLOW_MS);
      if (!isTest) this.#failuresInRow = status === "RETRYING" ? this.#failuresInRow + 1 : 0;
      this.#hasSucceeded ||= status === "SUCCEEDED";
      while (this.#unsettled.length + this.#settling >= MOST_UNSETTLED && !signal.aborted) {
        // The next writing takes all that is answered during the one under way.
        await (this.#settling > 0 ? this.#writing : this.#settleSoon());
      }
      if (signal.aborted) return;
      // The endpoint is failing by now: the other deliveries wait without using up an attempt.
      if (this.#failuresInRow >= FAILING_AFTER) return;
    }
  }

  /**
   * Whether an endpoint that is known to answer takes longer than `SLOW_MS`: all requests that its group may have in flight
   * are, and fewer were answered within that time.
   */
  #isSlow(lanes: number): boolean {
    const isWorking = this.#destination.health === "working" || this.#hasSucceeded;
    return isWorking && this.#failuresInRow === 0 && this.#inFlight >= lanes && this.#answered < lanes;
  }

  /** @returns undefined when no place for the request was free before the signal came: it was not sent */
  async #request(delivery: DueDelivery, signal: AbortSignal): Promise<Answer | undefined> {
    const { requests, client } = this.#deps;
    if (!(await requests.take(this.#teamId, signal))) return undefined;
    this.#inFlight++;
    try {
      return await client.post(this.#compose(delivery));
    } finally {
      this.#inFlight--;
      requests.giveBack(this.#teamId);
    }
  }

  #compose(delivery: DueDelivery): DeliveryRequest {
    const { url, apiVersion, webhookId } = this.#destination;
    // Encoded once for the signature and the socket.
    const body = Buffer.from(renderEvent(apiVersion, delivery));
    const facts = { ...delivery, deliveryId: delivery.id, webhookId, apiVersion };
    const headers = deliveryHeaders(facts, this.#signers, body, this.#customHeaders);
    return { url, headers, body };
  }

  /** Writes the outcomes so far, and those that come before its turn. Those that cannot be written now are written later. */
  #settleSoon(): Promise<void> {
    this.#nextWriting ??= this.#write().catch(() => delay(SETTLE_AGAIN_MS));
    return this.#nextWriting;
  }

  /** Writes all outcomes. They are kept while the database is away: a lost outcome means that its request is repeated. */
  async #settleAll(): Promise<void> {
    for (const giveUpAt = performance.now() + SETTLE_FOR_MS; ; ) {
      try {
        return await this.#write();
      } catch (error) {
        if (performance.now() > giveUpAt) throw error;
        await delay(SETTLE_AGAIN_MS);
      }
    }
  }

  /** One writing at a time, so that failures in a row are counted in their order. */
  #write(): Promise<void> {
    const written = this.#writing.then(async () => {
      const answers = this.#unsettled;
      this.#unsettled = [];
      this.#nextWriting = undefined;
      if (answers.length === 0) return;
      this.#settling = answers.length;
      try {
        const askedWaitMs = Math.max(0, ...answers.map(({ retryAfterMs }) => retryAfterMs));
        this.#setRetry(answers, askedWaitMs);
        const outcomes = answers.map(({ outcome }) => outcome);
        const change = await this.#settle(outcomes, askedWaitMs);
        if (change === "gone") this.#gone.abort();
        else if (change) {
          const { webhookId } = this.#destination;
          const { responseStatus } = outcomes.at(-1) ?? {};
          const facts = { webhookId, teamId: this.#teamId, state: change, reason: this.reason, responseStatus };
          this.#deps.log.info(facts, `an endpoint is ${change}`);
        }
        this.#count(outcomes);
        this.#deps.countAttempts(outcomes);
      } catch (error) {
        this.#unsettled = [...answers, ...this.#unsettled];
        throw error;
      } finally {
        this.#settling = 0;
      }
    });
    this.#writing = written.catch(() => undefined);
    return written;
  }

  /** @returns the change of the endpoint, see `updateHealth` */
  async #settle(outcomes: readonly AttemptOutcome[], askedWaitMs: number): Promise<EndpointChange | undefined> {
    const { connections, successes } = this.#deps;
    const { webhookId } = this.#destination;
    const haveSucceeded = areSuccesses(outcomes);
    if (haveSucceeded && this.#isSteady && (await successes.write(this.#teamId, this.#writer, { webhookId, outcomes })))
      return undefined;
    const kind = { isProbe: this.#retries.isProbe, askedWaitMs };
    const change = await connections.run(this.#teamId, () =>
      settleAttempts(this.#em, webhookId, outcomes, this.#waitMs, kind),
    );
    this.#isSteady = haveSucceeded;
    return change;
  }

  /** The deliveries of a group are retried together, after the longest wait that one of the answers asked for. */
  #setRetry(answers: readonly ClassifiedAnswer[], askedWaitMs: number): void {
    const last = answers.findLast(({ outcome }) => outcome.status === "RETRYING");
    if (!last) return;
    this.reason = last.reason ?? "";
    this.#waitMs = Math.max(this.#waitMs, this.#retries.retryInMs, askedWaitMs);
  }

  #count(outcomes: readonly AttemptOutcome[]): void {
    for (const { status } of outcomes) {
      if (status === "SUCCEEDED") this.counts.succeeded++;
      else if (status === "FAILED") this.counts.failed++;
      else if (status === "BLOCKED") this.counts.blocked++;
    }
  }
}
