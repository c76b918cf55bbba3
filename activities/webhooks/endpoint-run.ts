import type { Vault } from "../../domain/secrets/crypto.ts";
import { classifyAnswer, jittered } from "../../domain/webhooks/classify.ts";
import { deliveryHeaders } from "../../domain/webhooks/delivery-headers.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import type { CustomHeaders } from "../../domain/webhooks/headers.ts";
import type { AttemptOutcome } from "../../domain/webhooks/outcomes.ts";
import { renderEvent } from "../../domain/webhooks/payload.ts";
import { claimDue, type DueDelivery, noteUnknown, type TakenEndpoint } from "../../domain/webhooks/queue.ts";
import { openHeaders, openSecret } from "../../domain/webhooks/secrets.ts";
import { signerOf } from "../../domain/webhooks/signature.ts";
import type { Hmac } from "../../lib/hmac.ts";
import type { ActivityDeps } from "../deps.ts";
import type { DeliveryClient, DeliveryRequest } from "./http-client.ts";
import type { OutcomeWriter } from "./outcome-writer.ts";
import type { RequestPlaces } from "./request-places.ts";

/** Requests that a working endpoint has in flight; any other has one. */
const LEAST_WIDTH = 16;
const MOST_WIDTH = 128;
/** Requests in flight for each ms that its fast answers take: as many as one process can send within that time. */
const WIDTH_PER_MS = 2;
/** What counts as fast grows by this with each answer. */
const SLOWER_MS_PER_ANSWER = 0.5;
/** Requests in flight and answers whose outcome is not written, at least: a crash repeats them. */
const LEAST_UNSETTLED = 48;
/** Deliveries that one statement claims at least, and with how many left the next ones are claimed. */
const CLAIMED_AT_ONCE = 100;
const CLAIM_BELOW = 32;
/** After so many claims in a row the next one looks at the oldest deliveries again: some may have been committed late. */
const CLAIMS_ONWARD = 20;
const BEGIN_FOR_MS = 25_000;
/** How long an end waits for requests in flight: it leaves the others behind, which this process settles all the same. */
const END_WITHIN_MS = 500;
/** How long a run waits for further deliveries: another workflow costs more. */
const LINGER_MS = 1_000;
/** How often a run looks at itself, and after which pause another process may have taken its endpoint. */
const TICK_MS = 500;
const FROZEN_MS = 4_000;
/** How often it looks whether the endpoint was changed, also while it can take no more. */
const CLAIM_EVERY_MS = 2_000;
const OLDEST = "-infinity";

export interface RunDeps extends Pick<ActivityDeps, "orm"> {
  client: Pick<DeliveryClient, "post">;
  writer: OutcomeWriter;
  places: RequestPlaces;
  /** Waits before each attempt; the first is 0. */
  ladderMs: readonly number[];
  /** From the beginning of a request to its written outcome. */
  settledWithinMs: number;
}

interface Ended {
  /** Claimed deliveries whose requests may still be answered, and for how long. */
  left: string[];
  leftForMs: number;
  /** Why the latest delivery failed; null when it succeeded, undefined when none was attempted. */
  reason: string | null | undefined;
}

/**
 * Delivers to one endpoint, for one activity after the other, each under its own epoch. Requests that one left behind hold their
 * places until they are settled.
 */
export class EndpointRun {
  readonly #deps: RunDeps;
  /** By the activity that it serves now, or served last. */
  #taken: TakenEndpoint;
  #signers: Hmac[] = [];
  #customHeaders: CustomHeaders = {};
  #ended = Promise.withResolvers<void>();
  /** Of this process or of Postgres. */
  #fault: { reason: unknown } | undefined;
  /** Claimed and not sent yet. */
  #queue: DueDelivery[] = [];
  /** Claimed and not settled, with the work on those that were sent. */
  readonly #held = new Map<string, Promise<void> | undefined>();
  /** In flight in another process, and until when, by `performance.now()`. */
  #elsewhere: string[] = [];
  #elsewhereUntil = 0;
  #inFlight = 0;
  #isClaiming = false;
  /** The latest claim took all that was due. */
  #isDry = false;
  #claimsOnward = 0;
  /** The next claim begins here: it need not pass what was settled before. */
  #claimFrom = OLDEST;
  /** When the latest claim began, by `performance.now()`. */
  #claimedAt = 0;
  #linger: NodeJS.Timeout | undefined;
  #isRunning = false;
  #isEnding = false;
  #endsAt = Number.POSITIVE_INFINITY;
  #tickedAt = 0;
  #hasAnswered = false;
  #failures = 0;
  #fastMs: number | undefined;
  #reason: string | null | undefined;

  constructor(deps: RunDeps, taken: TakenEndpoint) {
    this.#deps = deps;
    this.#taken = taken;
  }

  get isRunning(): boolean {
    return this.#isRunning;
  }

  has(deliveryId: string): boolean {
    return this.#held.has(deliveryId);
  }

  wake(): void {
    this.#isDry = false;
    this.#pump();
  }

  end(): void {
    if (!this.#isEnding) {
      this.#isEnding = true;
      this.#endsAt = performance.now() + END_WITHIN_MS;
      // Not sent: they stay due.
      for (const { id } of this.#queue.splice(0)) this.#held.delete(id);
      setTimeout(this.#pump, END_WITHIN_MS);
    }
    this.#pump();
  }

  async stop(): Promise<void> {
    if (!this.#isRunning) return;
    this.end();
    await this.#ended.promise;
  }

  async allSettled(): Promise<void> {
    await Promise.allSettled(this.#held.values());
  }

  /** @param elsewhere deliveries that another process may have in flight, for so long @param ends any of them ends the run */
  async run(
    taken: TakenEndpoint,
    vault: Vault,
    elsewhere: string[],
    elsewhereForMs: number,
    ends: readonly AbortSignal[],
  ): Promise<Ended> {
    this.#begin(taken, vault, elsewhere, elsewhereForMs);
    const end = () => this.end();
    const timers = [
      setTimeout(end, BEGIN_FOR_MS),
      setInterval(() => {
        this.#pump();
        this.#tickedAt = performance.now();
      }, TICK_MS),
    ];
    for (const signal of ends) {
      signal.addEventListener("abort", end);
      if (signal.aborted) end();
    }
    try {
      this.#pump();
      await this.#ended.promise;
      if (this.#fault) throw this.#fault.reason;
      const elsewhereForMs = this.#elsewhere.length > 0 ? Math.max(0, this.#elsewhereUntil - performance.now()) : 0;
      const leftForMs = this.#held.size > 0 ? this.#deps.settledWithinMs : elsewhereForMs;
      return { left: [...this.#held.keys(), ...this.#elsewhere], leftForMs, reason: this.#reason };
    } finally {
      this.#isRunning = false;
      for (const timer of [...timers, this.#linger]) clearTimeout(timer);
      for (const signal of ends) signal.removeEventListener("abort", end);
    }
  }

  #begin(taken: TakenEndpoint, vault: Vault, elsewhere: string[], elsewhereForMs: number): void {
    const { webhookId, encryptedSecret, previousEncryptedSecret, encryptedHeaders, health, failures } = taken;
    this.#signers = [encryptedSecret, previousEncryptedSecret]
      .filter((sealed) => sealed !== null)
      .map((sealed) => signerOf(openSecret(vault, webhookId, sealed)));
    this.#customHeaders = openHeaders(vault, webhookId, encryptedHeaders);
    this.#taken = taken;
    this.#hasAnswered = health !== "unproven";
    this.#failures = failures;
    // Ends of runs put it off in Postgres as long as this process leaves requests behind.
    const until = performance.now() + elsewhereForMs;
    this.#elsewhereUntil = this.#elsewhere.length > 0 ? Math.min(this.#elsewhereUntil, until) : until;
    this.#elsewhere = elsewhere;
    this.#ended = Promise.withResolvers();
    this.#fault = undefined;
    this.#isDry = false;
    this.#claimFrom = OLDEST;
    this.#linger = undefined;
    this.#isRunning = true;
    this.#isEnding = false;
    this.#reason = undefined;
    this.#tickedAt = performance.now();
  }

  get #isFailing(): boolean {
    return this.#failures >= FAILING_AFTER;
  }

  /** One request at a time shows whether it answers. */
  get #isProbing(): boolean {
    return !this.#hasAnswered || this.#isFailing;
  }

  /** Begins what may begin, or ends the run. Called whenever something has changed. */
  #pump = (): void => {
    if (!this.#isRunning) return;
    const now = performance.now();
    if (now - this.#tickedAt > FROZEN_MS && !this.#isEnding) this.end();
    if (this.#isEnding) {
      if (!this.#isClaiming && (this.#held.size === 0 || now >= this.#endsAt)) this.#ended.resolve();
      return;
    }
    this.#send();
    if (this.#mayClaim()) {
      this.#isClaiming = true;
      void this.#claim()
        .catch((reason) => this.#fail(reason))
        .finally(() => {
          this.#isClaiming = false;
          this.#pump();
        });
    }
    if (this.#held.size > 0 || this.#isClaiming) {
      clearTimeout(this.#linger);
      this.#linger = undefined;
      // A failing endpoint gets nothing before its next probe.
    } else if (this.#isFailing) this.end();
    else this.#linger ??= setTimeout(() => this.end(), LINGER_MS);
  };

  #send(): void {
    const width = this.#width;
    const mostUnsettled = Math.max(LEAST_UNSETTLED, width);
    const mayBegin = () => this.#inFlight < width || this.#queue[0]?.isTest;
    while (this.#queue.length > 0 && mayBegin() && this.#held.size - this.#queue.length < mostUnsettled) {
      if (!this.#deps.places.take(this.#taken.teamId, this.#pump)) return;
      const due = this.#queue.shift();
      if (!due) return;
      this.#inFlight++;
      this.#held.set(
        due.id,
        this.#attempt(due).catch((reason) => this.#fail(reason)),
      );
    }
  }

  #mayClaim(): boolean {
    if (this.#isClaiming) return false;
    return performance.now() - this.#claimedAt > CLAIM_EVERY_MS || (!this.#isDry && this.#hasRoom);
  }

  get #hasRoom(): boolean {
    // Beside the request that shows whether it answers, tests are looked for.
    if (this.#isProbing) return this.#queue.length === 0;
    return this.#queue.length < Math.max(CLAIM_BELOW, this.#width / 2);
  }

  /** Requests that it may have in flight. Answers that are slower than the fast ones may have waited for this process. */
  get #width(): number {
    if (this.#isProbing) return 1;
    return Math.max(LEAST_WIDTH, Math.min(MOST_WIDTH, Math.ceil((this.#fastMs ?? 0) * WIDTH_PER_MS)));
  }

  async #claim(): Promise<void> {
    const { orm, ladderMs } = this.#deps;
    const taken = this.#taken;
    const hasRoom = this.#hasRoom;
    this.#isDry = true;
    this.#claimedAt = performance.now();
    const em = orm.em.fork();
    if (this.#elsewhere.length > 0 && performance.now() > this.#elsewhereUntil)
      await noteUnknown(em, taken, this.#elsewhere.splice(0));
    const limit = !hasRoom ? 0 : this.#isProbing ? 1 : Math.max(CLAIMED_AT_ONCE, this.#width);
    const held = [...this.#held.keys(), ...this.#elsewhere];
    const testsAlone = this.#isProbing && this.#held.size > 0;
    const bounds = { from: this.#claimFrom, limit, testsAlone };
    const claimed = await claimDue(em, { ...taken, ...bounds, held, ladderLength: ladderMs.length });
    // The endpoint was changed, paused or switched off: the next run reads it anew.
    if (!claimed || this.#isEnding) return this.end();
    const { due, isFull } = claimed;
    for (const one of due) this.#held.set(one.id, undefined);
    this.#queue.push(...due);
    // A delivery that was committed late may be due since before: the claim that finds it begins at the oldest.
    if (isFull || this.#claimFrom !== OLDEST) this.#isDry = false;
    const isOnward = isFull && !this.#isProbing && ++this.#claimsOnward % CLAIMS_ONWARD > 0;
    this.#claimFrom = isOnward ? (due.at(-1)?.dueAt ?? OLDEST) : OLDEST;
  }

  async #attempt(due: DueDelivery): Promise<void> {
    const { client, places, writer, ladderMs } = this.#deps;
    const isProbe = this.#isFailing && !due.isTest;
    const wasProbing = this.#isProbing;
    const { webhookId, teamId } = this.#taken;
    try {
      const answer = await client.post(this.#compose(due)).finally(() => {
        this.#inFlight--;
        places.giveBack(teamId);
      });
      // A probe gives no delivery up that is younger than the ladder is long.
      const mayGiveUp = !isProbe || due.ageMs > ladderMs.reduce((sum, ms) => sum + ms, 0);
      const nextMs = ladderMs[due.attemptsUsed + 1] ?? (mayGiveUp ? undefined : ladderMs.at(-1));
      const isLast = due.isTest || nextMs === undefined;
      const { outcome, reason, retryAfterMs } = classifyAnswer(due.id, answer, isLast, due.isTest);
      const isRetried = outcome.status === "RETRYING" && nextMs !== undefined;
      const retryInMs = isRetried ? Math.max(jittered(nextMs, Math.random()), retryAfterMs) : null;
      const isSteady = this.#hasAnswered && this.#failures === 0;
      this.#note(outcome, reason);
      const written = writer.write(teamId, {
        ...outcome,
        webhookId,
        retryInMs,
        isProbe,
        isSteady,
        askedWaitMs: retryAfterMs,
      });
      this.#pump();
      await written;
      // Meanwhile claims looked for tests alone.
      if (wasProbing) this.#isDry = false;
    } finally {
      this.#held.delete(due.id);
      this.#pump();
    }
  }

  #note({ status, durationMs, isTest }: AttemptOutcome, reason: string | undefined): void {
    this.#reason = reason ?? null;
    if (isTest) return;
    if (status === "SUCCEEDED") {
      this.#hasAnswered = true;
      this.#failures = 0;
      this.#fastMs = Math.min(durationMs, (this.#fastMs ?? durationMs) + SLOWER_MS_PER_ANSWER);
    } else if (++this.#failures >= FAILING_AFTER && this.#isRunning) this.end();
  }

  #compose(due: DueDelivery): DeliveryRequest {
    const { webhookId, url, apiVersion } = this.#taken;
    // Encoded once for the signature and the socket.
    const body = Buffer.from(renderEvent(apiVersion, due));
    const facts = { ...due, deliveryId: due.id, webhookId, apiVersion };
    return { url, headers: deliveryHeaders(facts, this.#signers, body, this.#customHeaders), body };
  }

  /** Temporal has the activity made again, under the next epoch. */
  #fail(reason: unknown): void {
    this.#fault ??= { reason };
    if (this.#isRunning) this.end();
  }
}
