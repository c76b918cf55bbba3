import { Context } from "@temporalio/activity";
import { type ReplayProgress, replayPage } from "../../domain/webhooks/bulk-replay.ts";
import { blockWaiting, commandEndpoint, type EndpointCommand } from "../../domain/webhooks/commands.ts";
import { endRun, noteUnknown, type Rest, readRest, takeEndpoint } from "../../domain/webhooks/queue.ts";
import type { ActivityDeps } from "../deps.ts";
import { whileBeating } from "../heartbeat.ts";
import { EndpointRun, type RunDeps } from "./endpoint-run.ts";
import type { DeliveryClient } from "./http-client.ts";
import { OutcomeWriter } from "./outcome-writer.ts";
import { RequestPlaces } from "./request-places.ts";

/** An outcome is written within this time after its request, or Postgres is away. */
const SETTLED_AFTER_MS = 10_000;

/** The result of a run. */
export interface Delivered {
  /** Undefined when the endpoint is deleted. */
  rest: Rest | undefined;
  /** See `Ended`. */
  reason?: string | null | undefined;
}

export interface DeliveryActivities {
  /** Makes the deliveries that are due at an endpoint and those that come meanwhile; at most 30 s. */
  deliverDue(webhookId: string): Promise<Delivered>;
  /** Carries out a command of operators. @returns the answer to it */
  commandEndpoint(webhookId: string, command: EndpointCommand): Promise<string>;
  /** Queues the next deliveries of a bulk replay. */
  replayNext(replayId: string): Promise<ReplayProgress>;
}

const ANSWERS: Record<EndpointCommand, (deliveries: number) => string> = {
  retryNow: (deliveries) => `${deliveries} are attempted now`,
  pause: () => "PAUSED: requests in flight end by themselves",
  resume: () => "delivers again",
  cancelWaiting: (deliveries) => `${deliveries} given up; they can be replayed`,
};

interface Deps extends Pick<ActivityDeps, "env" | "orm" | "vault" | "stopping" | "countAttempts" | "log"> {
  client: Pick<DeliveryClient, "post">;
}

/** The endpoints that a process delivers to. */
export class EndpointDeliveries {
  readonly #deps: Deps;
  readonly #runDeps: RunDeps;
  /** Endpoints with a run, or with requests that a run left behind. */
  readonly #runs = new Map<string, EndpointRun>();

  constructor(deps: Deps) {
    this.#deps = deps;
    this.#runDeps = {
      ...deps,
      ladderMs: deps.env.WEBHOOK_LADDER_SECONDS.map((seconds) => seconds * 1_000),
      writer: new OutcomeWriter(deps),
      places: new RequestPlaces(),
      settledWithinMs: deps.env.WEBHOOK_TIMEOUT_MS + SETTLED_AFTER_MS,
    };
  }

  wake(webhookIds: Iterable<string>): void {
    for (const webhookId of webhookIds) this.#runs.get(webhookId)?.wake();
  }

  /** Of these endpoints those that no run of this process serves. */
  notHere(webhookIds: Iterable<string>): string[] {
    return [...webhookIds].filter((webhookId) => !this.#runs.get(webhookId)?.isRunning);
  }

  readonly activities: DeliveryActivities = {
    deliverDue: (webhookId) => whileBeating(() => this.#deliverDue(webhookId)),
    commandEndpoint: (webhookId, command) =>
      whileBeating(async () => ANSWERS[command](await commandEndpoint(this.#deps.orm.em.fork(), webhookId, command))),
    replayNext: (replayId) => replayPage(this.#deps.orm.em.fork(), replayId),
  };

  /** Waits for requests in flight and their outcomes. */
  async close(): Promise<void> {
    await Promise.all([...this.#runs.values()].map((run) => run.allSettled()));
  }

  async #deliverDue(webhookId: string): Promise<Delivered> {
    const { orm, vault, stopping } = this.#deps;
    const em = orm.em.fork();
    // Temporal makes an activity again whose heartbeats were late, also beside the first.
    await this.#runs.get(webhookId)?.stop();
    const taken = await takeEndpoint(em, webhookId);
    if (!taken) {
      const rest = await readRest(em, webhookId);
      if (!rest || rest.active || rest.waiting === 0) return { rest };
      await blockWaiting(em, webhookId);
      return { rest: await readRest(em, webhookId) };
    }
    const run = this.#runs.get(webhookId) ?? new EndpointRun(this.#runDeps, taken);
    this.#runs.set(webhookId, run);
    try {
      const { leftForMs } = taken;
      const abandoned = taken.claimed.filter((id) => !run.has(id));
      const mayBeAnswered = leftForMs !== null && leftForMs > 0;
      if (abandoned.length > 0 && !mayBeAnswered) await noteUnknown(em, taken, abandoned);
      const ends = [stopping, Context.current().cancellationSignal];
      const elsewhere = mayBeAnswered ? abandoned : [];
      const ended = await run.run(taken, vault, elsewhere, leftForMs ?? 0, ends);
      await endRun(em, taken, ended.left, ended.leftForMs);
      return { rest: await readRest(em, webhookId), reason: ended.reason };
    } catch (error) {
      // Once an operator has given up what waited, a failing step need not be tried again.
      const rest = await readRest(em, webhookId);
      if (rest && rest.waiting > 0) throw error;
      return { rest };
    } finally {
      this.#forget(run, webhookId);
    }
  }

  /** Forgets a run once all that it left behind is settled. */
  #forget(run: EndpointRun, webhookId: string): void {
    void run.allSettled().then(() => {
      if (!run.isRunning && this.#runs.get(webhookId) === run) this.#runs.delete(webhookId);
    });
  }
}
