import { setTimeout as delay } from "node:timers/promises";
import { inSpan, keepSpan } from "../../config/tracing.ts";
import { type ClassifiedAttempt, classifyAttempt, jittered } from "../../domain/webhooks/classify.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import type { CustomHeaders } from "../../domain/webhooks/headers.ts";
import { type EndpointOutcome, writeOutcomes } from "../../domain/webhooks/outcomes.ts";
import {
  claimDue,
  type DueDelivery,
  endRun,
  noteUnknown,
  type TakenEndpoint,
  takeEndpoint,
} from "../../domain/webhooks/queue.ts";
import { deliveryHeaders, renderEvent, signerOf } from "../../domain/webhooks/request.ts";
import { openHeaders, openSecret } from "../../domain/webhooks/secrets.ts";
import { Batches } from "../../lib/batches.ts";
import type { Hmac } from "../../lib/hmac.ts";
import type { ActivityDeps } from "../deps.ts";
import type { DeliveryClient, DeliveryRequest } from "./http-client.ts";

/** Requests that a working endpoint has in flight; any other has one. */
const LEAST_WIDTH = 16;
const MOST_WIDTH = 128;
/** Requests in flight for each ms that its fast answers take: as many as one process can send within that time. */
const WIDTH_PER_MS = 2;
/** What counts as fast grows by this with each answer. */
const SLOWER_MS_PER_ANSWER = 0.5;
/** Requests in flight and answers whose outcome is not written, at least: a crash repeats them. */
const LEAST_UNSETTLED = 32;
/** Deliveries that one statement claims at least, and with how many left the next ones are claimed. */
const CLAIMED_AT_ONCE = 100;
const CLAIM_BELOW = 32;
/**
 * After so long a run begins nothing for a moment, and ends if nothing is in flight: the workflow shows how it went. A request that
 * hangs holds up no other.
 */
const TURN_MS = 25_000;
const PAUSE_MS = 500;
/** A run that always has a request in flight ends after so long: after an hour Temporal would begin another one beside it. */
const LONGEST_MS = 30 * 60_000;
/** How long a run waits for further deliveries: another workflow costs more. */
const LINGER_MS = 1_000;
const TICK_MS = 250;
/** How often it looks whether the endpoint was changed, also while it can take no more. */
const CLAIM_EVERY_MS = 2_000;
/** It begins no request so long after its latest look: another process may have taken the endpoint from a frozen one. */
const FROZEN_MS = 4_000;
const OLDEST = "-infinity";
/** A success after another is noted in its endpoint's health so often at most: the health is a fifth of what an outcome costs Postgres. */
const NOTED_EVERY_MS = 1_000;

export interface RunDeps extends Pick<ActivityDeps, "orm" | "vault"> {
  client: Pick<DeliveryClient, "post">;
  writer: OutcomeWriter;
  places: RequestPlaces;
  /** Waits before each attempt; the first is 0. */
  ladderMs: readonly number[];
}

/** Delivers to one endpoint, for one activity, until nothing is due any more. */
export class EndpointRun {
  readonly #deps: RunDeps;
  readonly #webhookId: string;
  #taken: TakenEndpoint | undefined;
  #signers: Hmac[] = [];
  #customHeaders: CustomHeaders = {};
  /** Nothing is in flight, after the end. */
  readonly #idle = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<void>();
  /** Of this process or of Postgres. */
  #fault: { reason: unknown } | undefined;
  /** Claimed and not sent yet. */
  #queue: DueDelivery[] = [];
  /** Claimed and not settled. */
  readonly #held = new Set<string>();
  #inFlight = 0;
  #isClaiming = false;
  /** The latest claim took all that was due. */
  #isDry = false;
  /** The next claim begins here: it need not pass settled deliveries. Once a claim is not full, the next looks at all again. */
  #claimFrom = OLDEST;
  /** When the latest claim began, by `performance.now()`. */
  #claimedAt = 0;
  #linger: NodeJS.Timeout | undefined;
  #isEnding = false;
  readonly #beganAt = performance.now();
  #hasAnswered = false;
  #failures = 0;
  /** When a success was noted after which none failed, by `performance.now()`. */
  #notedAt = Number.NEGATIVE_INFINITY;
  #fastMs: number | undefined;
  #reason: string | null | undefined;

  constructor(deps: RunDeps, webhookId: string) {
    this.#deps = deps;
    this.#webhookId = webhookId;
  }

  /** Deliveries have come. */
  wake(): void {
    this.#isDry = false;
    this.#pump();
  }

  /** Begins nothing more; claimed deliveries that were not sent stay due. @returns when the run has ended */
  end = (): Promise<void> => {
    this.#isEnding = true;
    this.#dropQueue();
    this.#pump();
    return this.#ended.promise;
  };

  /**
   * @param ends any of them ends the run
   * @returns why the latest delivery failed; null when it succeeded, undefined when none was attempted
   */
  async run(ends: readonly AbortSignal[]): Promise<string | null | undefined> {
    const tick = setInterval(this.#pump, TICK_MS);
    const longest = setTimeout(this.end, LONGEST_MS);
    for (const signal of ends) signal.addEventListener("abort", this.end);
    try {
      if (!(await this.#take()) || !this.#taken) return undefined;
      if (ends.some(({ aborted }) => aborted)) void this.end();
      this.#pump();
      await this.#idle.promise;
      if (this.#fault) throw this.#fault.reason;
      await endRun(this.#deps.orm.em.fork(), this.#taken);
      return this.#reason;
    } finally {
      for (const timer of [tick, longest, this.#linger]) clearTimeout(timer);
      for (const signal of ends) signal.removeEventListener("abort", this.end);
      this.#ended.resolve();
    }
  }

  /** Takes the endpoint as it is now, under a new epoch. @returns false when nothing may be sent to it, or another run has taken it */
  async #take(): Promise<boolean> {
    const { orm, vault } = this.#deps;
    const em = orm.em.fork();
    const taken = await takeEndpoint(em, this.#webhookId, this.#taken?.epoch);
    if (!taken) return false;
    const unknown = taken.claimed.filter((id) => !this.#held.has(id));
    if (unknown.length > 0) await noteUnknown(em, unknown);
    const { encryptedSecret, previousEncryptedSecret, encryptedHeaders, health, failures } = taken;
    this.#signers = [encryptedSecret, previousEncryptedSecret]
      .filter((sealed) => sealed !== null)
      .map((sealed) => signerOf(openSecret(vault, this.#webhookId, sealed)));
    this.#customHeaders = openHeaders(vault, this.#webhookId, encryptedHeaders);
    this.#hasAnswered = health !== "unproven";
    this.#failures = failures;
    this.#claimedAt = performance.now();
    this.#claimFrom = OLDEST;
    this.#isDry = false;
    this.#taken = taken;
    return true;
  }

  #dropQueue(): void {
    for (const { id } of this.#queue.splice(0)) this.#held.delete(id);
    this.#claimFrom = OLDEST;
  }

  get #isFailing(): boolean {
    return this.#failures >= FAILING_AFTER;
  }

  /** One request at a time shows whether it answers. */
  get #isProbing(): boolean {
    return !this.#hasAnswered || this.#isFailing;
  }

  get #mayBegin(): boolean {
    return !this.#isEnding && (performance.now() - this.#beganAt) % (TURN_MS + PAUSE_MS) < TURN_MS;
  }

  /** Begins what may begin, or ends the run. Called whenever something has changed, by other activities too. */
  #pump = keepSpan((): void => {
    const taken = this.#taken;
    if (!taken) return;
    const mayBegin = this.#mayBegin;
    if (mayBegin && performance.now() - this.#claimedAt < FROZEN_MS) this.#send(taken);
    const isLate = performance.now() - this.#claimedAt > CLAIM_EVERY_MS;
    if (!this.#isClaiming && !this.#fault && (isLate || (mayBegin && !this.#isDry && this.#hasRoom))) {
      this.#isClaiming = true;
      void this.#claim(taken)
        .catch(this.#fail)
        .finally(() => {
          this.#isClaiming = false;
          this.#pump();
        });
    }
    if (this.#isClaiming || this.#held.size > this.#queue.length) {
      clearTimeout(this.#linger);
      this.#linger = undefined;
    } else if (this.#isEnding) this.#idle.resolve();
    // A failing endpoint gets nothing before its next probe.
    else if (!mayBegin || this.#isFailing) void this.end();
    else if (this.#held.size === 0) this.#linger ??= setTimeout(this.end, LINGER_MS);
  });

  #send(taken: TakenEndpoint): void {
    const width = this.#width;
    const mostUnsettled = Math.max(LEAST_UNSETTLED, width);
    const mayBegin = () => this.#inFlight < width || this.#queue[0]?.isTest;
    while (this.#queue.length > 0 && mayBegin() && this.#held.size - this.#queue.length < mostUnsettled) {
      if (!this.#deps.places.take(taken.teamId, this.#pump)) return;
      const due = this.#queue.shift();
      if (!due) return;
      this.#inFlight++;
      void this.#attempt(due, taken);
    }
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

  async #claim(taken: TakenEndpoint): Promise<void> {
    const { orm, ladderMs } = this.#deps;
    const beganAt = performance.now();
    const limit = !this.#mayBegin || !this.#hasRoom ? 0 : this.#isProbing ? 1 : Math.max(CLAIMED_AT_ONCE, this.#width);
    const testsAlone = this.#isProbing && this.#held.size > 0;
    const bounds = { from: this.#claimFrom, limit, testsAlone, held: [...this.#held] };
    this.#isDry = true;
    const claimed = await claimDue(orm.em.fork(), { ...taken, ...bounds, ladderLength: ladderMs.length });
    this.#claimedAt = beganAt;
    if (this.#isEnding || (this.#isFailing && limit > 1)) return;
    if (!claimed) {
      // The endpoint or its queue was changed, it was paused or switched off, or has another owner.
      if (!(await this.#take())) void this.end();
      return;
    }
    const { due, isFull } = claimed;
    for (const { id } of due) this.#held.add(id);
    this.#queue.push(...due);
    if (isFull || this.#claimFrom !== OLDEST) this.#isDry = false;
    this.#claimFrom = (isFull && !this.#isProbing && due.at(-1)?.dueAt) || OLDEST;
  }

  async #attempt(due: DueDelivery, taken: TakenEndpoint): Promise<void> {
    const { client, places, writer, ladderMs } = this.#deps;
    const isProbe = this.#isFailing && !due.isTest;
    const wasProbing = this.#isProbing;
    const { webhookId, teamId } = taken;
    try {
      const attributes = { webhook_id: webhookId, delivery_id: due.id, attempt: due.attemptsUsed + 1 };
      const part = { name: "webhook attempt", kind: "CLIENT", isPart: true, attributes } as const;
      const answer = await inSpan(part, async (span) => {
        const answer = await client.post(this.#compose(due, taken)).finally(() => {
          this.#inFlight--;
          places.giveBack(teamId);
        });
        const status = answer.kind === "answered" ? answer.status : undefined;
        span?.setAttributes({ answer: answer.kind, "http.response.status_code": status });
        return answer;
      });
      // A probe gives no delivery up that is younger than the ladder is long.
      const mayGiveUp = !isProbe || due.ageMs > ladderMs.reduce((sum, ms) => sum + ms, 0);
      const nextMs = ladderMs[due.attemptsUsed + 1] ?? (mayGiveUp ? undefined : ladderMs.at(-1));
      const isLast = due.isTest || nextMs === undefined;
      const { outcome, reason, retryAfterMs } = classifyAttempt(answer, isLast, due.isTest);
      const isRetried = outcome.status === "RETRYING" && nextMs !== undefined;
      const retryInMs = isRetried ? Math.max(jittered(nextMs, Math.random()), retryAfterMs) : null;
      const isNoted = this.#note(outcome, reason);
      const facts = { id: due.id, webhookId, isNoted, retryInMs, isProbe, askedWaitMs: retryAfterMs };
      const written = writer.write(teamId, { ...outcome, ...facts });
      this.#pump();
      await written;
      // Meanwhile claims looked for tests alone.
      if (wasProbing) this.#isDry = false;
    } catch (reason) {
      // Before it is dropped: a claim without it would hide from the next epoch that its outcome is unknown.
      this.#fail(reason);
    } finally {
      this.#held.delete(due.id);
      this.#pump();
    }
  }

  /** @returns whether it counts for the endpoint's health */
  #note({ status, durationMs, isTest }: ClassifiedAttempt["outcome"], reason: string | undefined): boolean {
    this.#reason = reason ?? null;
    if (isTest) return false;
    if (status !== "SUCCEEDED") {
      this.#notedAt = Number.NEGATIVE_INFINITY;
      if (++this.#failures >= FAILING_AFTER) this.#dropQueue();
      return true;
    }
    this.#hasAnswered = true;
    this.#failures = 0;
    this.#fastMs = Math.min(durationMs, (this.#fastMs ?? durationMs) + SLOWER_MS_PER_ANSWER);
    if (performance.now() - this.#notedAt < NOTED_EVERY_MS) return false;
    this.#notedAt = performance.now();
    return true;
  }

  #compose(due: DueDelivery, { webhookId, url, apiVersion }: TakenEndpoint): DeliveryRequest {
    // Encoded once for the signature and the socket.
    const body = Buffer.from(renderEvent(apiVersion, due));
    const facts = { ...due, deliveryId: due.id, webhookId, apiVersion };
    return { url, headers: deliveryHeaders(facts, this.#signers, body, this.#customHeaders), body };
  }

  /** Temporal has the activity made again, under the next epoch. */
  #fail = (reason: unknown): void => {
    this.#fault ??= { reason };
    void this.end();
  };
}

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

/** How long outcomes are kept for a database that is away, and how often it is tried. */
const KEEP_MS = 20_000;
const AGAIN_MS = 250;

/** Writes the outcomes of all endpoints of a team in one statement: a team whose endpoint is locked holds up no other. */
export class OutcomeWriter {
  readonly #deps: Pick<ActivityDeps, "orm" | "log" | "countAttempts">;
  readonly #teams = new Batches<EndpointOutcome, void>();

  constructor(deps: Pick<ActivityDeps, "orm" | "log" | "countAttempts">) {
    this.#deps = deps;
  }

  /** @throws when Postgres was away for too long: the next owner of the endpoint lists the attempt as unknown */
  async write(teamId: string, outcome: EndpointOutcome): Promise<void> {
    await this.#teams.join(teamId, outcome, (outcomes) => this.#tryFor(outcomes));
  }

  async #tryFor(outcomes: readonly EndpointOutcome[]): Promise<void> {
    const { orm, log, countAttempts } = this.#deps;
    for (const giveUpAt = performance.now() + KEEP_MS; ; await delay(AGAIN_MS)) {
      try {
        const changes = await writeOutcomes(orm.em.fork(), outcomes);
        for (const [webhookId, state] of changes) log.info({ webhookId, state }, `an endpoint is ${state}`);
        countAttempts(outcomes);
        return;
      } catch (error) {
        if (performance.now() > giveUpAt) throw error;
        const message = "outcomes of deliveries could not be written; tried again soon";
        log.warn({ err: error, outcomes: outcomes.length }, message);
      }
    }
  }
}
