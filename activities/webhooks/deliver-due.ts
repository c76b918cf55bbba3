import { Context } from "@temporalio/activity";
import type { EntityManager } from "../../db/orm.ts";
import {
  blockWaiting,
  endRun,
  giveUpWaiting,
  noteUnknown,
  type Rest,
  readRest,
  retryWaiting,
  setPaused,
  takeEndpoint,
} from "../../domain/webhooks/queue.ts";
import type { ActivityDeps } from "../deps.ts";
import { whileBeating } from "../heartbeat.ts";
import { EndpointRun, type RunDeps } from "./endpoint-run.ts";
import type { DeliveryClient } from "./http-client.ts";
import { OutcomeWriter } from "./outcome-writer.ts";
import { RequestPlaces } from "./request-places.ts";

/** The outcome of a request is written within this time after its end, or Postgres is away. */
const SETTLED_AFTER_MS = 10_000;

/** The result of a run, for the workflow of its endpoint. */
export interface Delivered {
  /** Undefined when the endpoint is deleted. */
  rest: Rest | undefined;
  /** See `Ended`. */
  reason?: string | null | undefined;
}

export type EndpointCommand = "retryNow" | "pause" | "resume" | "cancelWaiting";

export interface DeliveryActivities {
  /** Makes the deliveries that are due at an endpoint and those that come meanwhile; at most 30 s. */
  deliverDue(webhookId: string): Promise<Delivered>;
  /** Carries out a command of operators. @returns the answer to it */
  commandEndpoint(webhookId: string, command: EndpointCommand): Promise<string>;
}

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

  /** Lets the runs of these endpoints look for deliveries. */
  wake(webhookIds: Iterable<string>): void {
    for (const webhookId of webhookIds) this.#runs.get(webhookId)?.wake();
  }

  /** Of these endpoints those that no run of this process serves. */
  notHere(webhookIds: Iterable<string>): string[] {
    return [...webhookIds].filter((webhookId) => !this.#runs.get(webhookId)?.isRunning);
  }

  readonly activities: DeliveryActivities = {
    deliverDue: (webhookId) => whileBeating(() => this.#deliverDue(webhookId)),
    commandEndpoint: async (webhookId, command) => {
      const answer = await whileBeating(() => this.#command(this.#deps.orm.em.fork(), webhookId, command));
      this.wake([webhookId]);
      return answer;
    },
  };

  /** Waits for the requests in flight and for their outcomes. */
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
      const { reason, ...left } = await run.run(taken, vault, elsewhere, leftForMs ?? 0, ends);
      await endRun(em, { webhookId, epoch: taken.epoch, ...left });
      return { rest: await readRest(em, webhookId), reason };
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

  async #command(em: EntityManager, webhookId: string, command: EndpointCommand): Promise<string> {
    if (command === "cancelWaiting") return `${await giveUpWaiting(em, webhookId)} given up; they can be replayed`;
    if (command === "pause" || command === "resume") {
      await setPaused(em, webhookId, command === "pause");
      return command === "pause" ? "PAUSED: requests in flight end by themselves" : "delivers again";
    }
    return `${await retryWaiting(em, webhookId)} are attempted now`;
  }
}
