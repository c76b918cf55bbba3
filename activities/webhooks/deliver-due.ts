import { Context } from "@temporalio/activity";
import { blockWaiting, commandEndpoint, type EndpointCommand } from "../../domain/webhooks/commands.ts";
import { type Rest, readRest } from "../../domain/webhooks/queue.ts";
import type { ActivityDeps } from "../deps.ts";
import { whileBeating } from "../heartbeat.ts";
import { EndpointRun, OutcomeWriter, RequestPlaces, type RunDeps } from "./endpoint-run.ts";
import type { DeliveryClient } from "./http-client.ts";

/** The result of a run. */
export interface Delivered {
  /** Undefined when the endpoint is deleted. */
  rest: Rest | undefined;
  /** Why the latest delivery failed; null when it succeeded, undefined when none was attempted. */
  reason?: string | null | undefined;
}

export interface DeliveryActivities {
  /** Makes the deliveries to an endpoint until nothing is due, or 25 s have passed and nothing is in flight. */
  deliverDue(webhookId: string): Promise<Delivered>;
  /** Carries out a command of operators. @returns the answer to it */
  commandEndpoint(webhookId: string, command: EndpointCommand): Promise<string>;
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
  readonly #runs = new Map<string, EndpointRun>();

  constructor(deps: Deps) {
    this.#deps = deps;
    this.#runDeps = {
      ...deps,
      ladderMs: deps.env.WEBHOOK_LADDER_SECONDS.map((seconds) => seconds * 1_000),
      writer: new OutcomeWriter(deps),
      places: new RequestPlaces(),
    };
  }

  /** Has runs of this process look for deliveries to these endpoints. @returns those that it has no run of */
  wake(webhookIds: Iterable<string>): string[] {
    return [...webhookIds].filter((webhookId) => {
      const run = this.#runs.get(webhookId);
      run?.wake();
      return !run;
    });
  }

  readonly activities: DeliveryActivities = {
    deliverDue: (webhookId) => whileBeating(() => this.#deliverDue(webhookId)),
    commandEndpoint: (webhookId, command) =>
      whileBeating(async () => ANSWERS[command](await commandEndpoint(this.#deps.orm.em.fork(), webhookId, command))),
  };

  async #deliverDue(webhookId: string): Promise<Delivered> {
    const em = this.#deps.orm.em.fork();
    // Temporal makes an activity again whose heartbeats were late, also beside the first.
    await this.#runs.get(webhookId)?.end();
    const run = new EndpointRun(this.#runDeps, webhookId);
    this.#runs.set(webhookId, run);
    try {
      const reason = await run.run([this.#deps.stopping, Context.current().cancellationSignal]);
      const rest = await readRest(em, webhookId);
      if (!rest || rest.active || rest.waiting === 0) return { rest, reason };
      await blockWaiting(em, webhookId);
      return { rest: await readRest(em, webhookId), reason };
    } catch (error) {
      // Once an operator has given up what waited, a failing step need not be tried again.
      const rest = await readRest(em, webhookId);
      if (rest && rest.waiting > 0) throw error;
      return { rest };
    } finally {
      if (this.#runs.get(webhookId) === run) this.#runs.delete(webhookId);
    }
  }
}
