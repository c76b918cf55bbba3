import type { KeyObject } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { EntityManager } from "../../db/orm.ts";
import {
  type AttemptOutcome,
  cancelGroup,
  closeAttempt,
  type Destination,
  type DueDelivery,
  openAttempt,
  postponeGroup,
  settleAttempts,
} from "../../domain/webhooks/attempts.ts";
import type { CustomHeaders } from "../../domain/webhooks/headers.ts";
import { renderEvent } from "../../domain/webhooks/payload.ts";
import { openHeaders, openSecret } from "../../domain/webhooks/secrets.ts";
import { signatureHeader, signingKey } from "../../domain/webhooks/signature.ts";
import { type Answer, judge, type Verdict } from "../../domain/webhooks/verdict.ts";
import type { ActivityDeps } from "../deps.ts";
import { whileBeating } from "../heartbeat.ts";

/** Requests one group has in flight at once, and when its endpoint failed several times in a row. */
const REQUESTS = 16;
const REQUESTS_FAILING = 4;
/** No request begins later than this in one activity: with the longest request it ends within 30 s. */
const BEGIN_FOR_MS = 14_000;
/** The same for an attempt that is to be brief. */
const BEGIN_BRIEFLY_MS = 2_000;
/** How long outcomes are kept at most before they are written: what a crash then repeats. */
const SETTLE_EVERY_MS = 500;
/** How long outcomes are kept for a database that is away, and how often it is tried. */
const SETTLE_FOR_MS = 20_000;
const SETTLE_AGAIN_MS = 250;
/** How long a group whose slots are taken may take to ask again, at most. */
const BUSY_MS = 6 * 60_000;

export interface AttemptRequest {
  groupId: string;
  /** 0 is the first attempt. */
  rung: number;
  /** Until the next rung's attempt; null on the last. */
  retryInMs: number | null;
  /** What takes long is left to an attempt that is not. */
  brief?: boolean;
}

interface Counts {
  succeeded: number;
  failed: number;
  blocked: number;
}

export type AttemptResult =
  | { next: "busy" }
  /** Time is up, some are not attempted yet: go on at once. */
  | ({ next: "more"; reason: string } & Counts)
  | ({ next: "retry"; left: number; waitMs: number; nextAttemptAt: string; reason: string } & Counts)
  | ({ next: "done" } & Counts);

export interface DeliveryActivities {
  /** Attempts what is due of a group; at most 30 s. */
  attemptGroup(request: AttemptRequest): Promise<AttemptResult>;
  /** Gives up what is left of a group. @returns how many */
  cancelGroup(groupId: string): Promise<number>;
}

/** Makes one request; activities/webhooks/http-client.ts has the real one. */
export interface DeliveryClient {
  post(request: { url: string; headers: Record<string, string>; body: string }): Promise<Answer>;
}

interface Deps extends Pick<ActivityDeps, "orm" | "vault" | "stopping" | "countAttempts"> {
  client: DeliveryClient;
  /** Called when an endpoint may have room for more. */
  onRoom: () => void;
}

export function createDeliveryActivities(deps: Deps): DeliveryActivities {
  const { orm, onRoom } = deps;
  return {
    attemptGroup: async (request) => {
      const attempt = () => attemptGroup(deps, request);
      // A local activity has no heartbeat: its workflow task stands for it.
      const result = await (request.brief ? attempt() : whileBeating(attempt));
      onRoom();
      return result;
    },
    cancelGroup: async (groupId) => {
      const given = await cancelGroup(orm.em.fork(), groupId);
      onRoom();
      return given;
    },
  };
}

async function attemptGroup(deps: Deps, request: AttemptRequest): Promise<AttemptResult> {
  const { groupId, rung, retryInMs, brief = false } = request;
  const em = deps.orm.em.fork();
  const opened = await openAttempt(em, { groupId, rung });
  if (opened.state === "busy") {
    await postponeGroup(em, groupId, BUSY_MS);
    return { next: "busy" };
  }
  const counts: Counts = { succeeded: 0, failed: 0, blocked: 0 };
  if (opened.state === "over") return { next: "done", ...counts, failed: opened.failed, blocked: opened.blocked };

  const end = () => closeAttempt(em, { groupId, epoch: opened.epoch });
  let attempt: Attempt;
  try {
    attempt = new Attempt(deps, em, opened.destination, retryInMs);
  } catch (error) {
    await end();
    throw error;
  }
  const fault = await attempt.make(opened.due, brief ? BEGIN_BRIEFLY_MS : BEGIN_FOR_MS);
  // What was not sent is no unknown outcome: it stays as it is for the next try.
  const { pending, retrying, waitMs, nextAttemptAt } = await end();
  if (fault) throw fault.reason;
  const { succeeded, failed, blocked, reason } = attempt;
  Object.assign(counts, { succeeded, failed, blocked });
  if (pending > 0) return { next: "more", ...counts, reason };
  if (waitMs === null || nextAttemptAt === null) return { next: "done", ...counts };
  return { next: "retry", ...counts, left: retrying, waitMs, nextAttemptAt, reason };
}

/** One slice of an attempt: some requests at a time, their outcomes written as they come. */
class Attempt implements Counts {
  readonly #deps: Deps;
  readonly #em: EntityManager;
  readonly #destination: Destination;
  readonly #retryInMs: number | null;
  readonly #secrets: KeyObject[];
  readonly #custom: CustomHeaders;
  #unsettled: Verdict[] = [];
  #settledAt = performance.now();
  #writing: Promise<void> = Promise.resolve();

  succeeded = 0;
  failed = 0;
  blocked = 0;
  /** Why the latest of those that are tried again failed. */
  reason = "";
  /** The longest wait so far for the next attempt. */
  #waitMs = 0;

  constructor(deps: Deps, em: EntityManager, destination: Destination, retryInMs: number | null) {
    this.#deps = deps;
    this.#em = em;
    this.#destination = destination;
    this.#retryInMs = retryInMs;
    const { vault } = deps;
    const { webhookId, encryptedSecret, previousEncryptedSecret, encryptedHeaders } = destination;
    this.#secrets = [encryptedSecret, previousEncryptedSecret]
      .filter((sealed) => sealed !== null)
      .map((sealed) => signingKey(openSecret(vault, webhookId, sealed)));
    this.#custom = openHeaders(vault, webhookId, encryptedHeaders);
  }

  /** @returns a fault of ours that kept some from being sent; all else is written */
  async make(due: readonly DueDelivery[], beginForMs: number): Promise<PromiseRejectedResult | undefined> {
    const queue = due[Symbol.iterator]();
    const beginUntil = performance.now() + beginForMs;
    const lane = async () => {
      for (const delivery of queue) {
        // Not in one expression: `#unsettled` may be another array once the answer is here.
        const answer = await this.#request(delivery);
        this.#unsettled.push(judge(delivery.id, answer, this.#retryInMs === null));
        if (performance.now() - this.#settledAt > SETTLE_EVERY_MS) void this.#settleSoon();
        if (performance.now() > beginUntil || this.#deps.stopping.aborted) return;
      }
    };
    const lanes = Math.min(due.length, this.#destination.failing ? REQUESTS_FAILING : REQUESTS);
    // A fault of ours in one lane must not cost the others their outcomes.
    const ended = await Promise.allSettled(Array.from({ length: lanes }, lane));
    await this.#settleAll();
    return ended.find((end) => end.status === "rejected");
  }

  #request(delivery: DueDelivery): Promise<Answer> {
    const { url, apiVersion, webhookId } = this.#destination;
    const body = renderEvent(apiVersion, delivery);
    const timestamp = Math.floor(Date.now() / 1000);
    const headers: Record<string, string> = {
      ...this.#custom,
      "Content-Type": "application/json",
      "X-Service-Signature": signatureHeader(this.#secrets, timestamp, body),
      "X-Service-Timestamp": String(timestamp),
      "X-Service-Event": delivery.type,
      "X-Service-Event-Id": delivery.eventId,
      "X-Service-Delivery-Id": delivery.id,
      "X-Service-Webhook-Id": webhookId,
      "X-Service-Api-Version": apiVersion,
      ...(delivery.isReplay ? { "X-Service-Replay": "true" } : {}),
    };
    return this.#deps.client.post({ url, headers, body });
  }

  /** Writes what came so far; what cannot be written now is written later. */
  async #settleSoon(): Promise<void> {
    this.#settledAt = performance.now();
    await this.#write().catch(() => undefined);
  }

  /** Writes all outcomes. While the database is away they are kept for a while: forgotten, they would be made again. */
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
      const verdicts = this.#unsettled;
      this.#unsettled = [];
      if (verdicts.length === 0) return;
      try {
        this.#setRetry(verdicts);
        const outcomes = verdicts.map(({ outcome }) => outcome);
        await settleAttempts(this.#em, this.#destination.webhookId, outcomes, this.#waitMs);
        this.#count(outcomes);
        this.#deps.countAttempts(outcomes);
      } catch (error) {
        this.#unsettled = [...verdicts, ...this.#unsettled];
        throw error;
      }
    });
    this.#writing = written.catch(() => undefined);
    return written;
  }

  /** A group climbs together: the longest wait that one of its answers asked for is everybody's. */
  #setRetry(verdicts: readonly Verdict[]): void {
    const again = verdicts.filter(({ outcome }) => outcome.status === "RETRYING");
    const last = again.at(-1);
    if (!last || this.#retryInMs === null) return;
    this.reason = last.reason ?? "";
    const asked = Math.max(this.#retryInMs, ...again.map(({ retryAfterMs }) => retryAfterMs));
    this.#waitMs = Math.max(this.#waitMs, asked);
  }

  #count(outcomes: readonly AttemptOutcome[]): void {
    for (const { status } of outcomes) {
      if (status === "SUCCEEDED") this.succeeded++;
      else if (status === "FAILED") this.failed++;
      else if (status === "BLOCKED") this.blocked++;
    }
  }
}
