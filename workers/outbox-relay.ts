import { type Client, WorkflowExecutionAlreadyStartedError } from "@temporalio/client";
import pg from "pg";
import type { ActivityDeps } from "../activities/deps.ts";
import { forEachAlone } from "../activities/starts.ts";
import type { EndpointDeliveries } from "../activities/webhooks/deliver-due.ts";
import type { Watched } from "../config/progress.ts";
import { KEEP_ALIVE } from "../db/pool.ts";
import { DUE_CHANNEL, notifyDue, OUTBOX_CHANNEL } from "../domain/webhooks/emit.ts";
import { fanOut } from "../domain/webhooks/fan-out.ts";
import { type DueEndpoint, readDueEndpoints } from "../domain/webhooks/queue.ts";
import { Batches } from "../lib/batches.ts";
import { WAKE_UP } from "../temporal/ids.ts";
import { endpointStart } from "../temporal/starts.ts";
import type { webhookEndpointWorkflow } from "../workflows/webhook-endpoint.ts";
import { pause } from "./pause.ts";

/** How often the outbox is looked at without a notification. */
const POLL_MS = 500;
/** From one look to the next, for each change that the first one found: fewer looks cost Postgres less. */
const POLL_MS_PER_CHANGE = 8;
const MOST_BUSY_POLL_MS = 100;
const SWEEP_EVERY_MS = 2_000;
const LISTEN_AGAIN_MS = 1_000;
const LISTEN_CHECK_MS = 30_000;
const LISTEN_ANSWER_MS = 10_000;
/** Starting an endpoint again sooner would add to the load that delays its run. */
const START_AGAIN_MS = 5_000;
const STALL_LIMIT_MS = 60_000;

/**
 * Takes changes from the outbox to the queues of endpoints, and has each queue served by a run of this process, a run of another one,
 * or the workflow that it starts or wakes. Every process of the pool does this; the sweep of any finds endpoints that a dead one left.
 */
export class OutboxRelay {
  readonly #deps: ActivityDeps;
  readonly #deliveries: Pick<EndpointDeliveries, "wake">;
  #client: Client | undefined;
  #loops: Promise<unknown> = Promise.resolve();
  /** When it last looked at the outbox, by `performance.now()`. */
  #movedAt = performance.now();
  #notified = Promise.withResolvers<void>();
  /** Endpoints that are being started or were lately, each with its epoch: a run that has begun has raised it. */
  readonly #started = new Set<string>();
  /** One call at a time, so that many new endpoints do not take the whole of Temporal. */
  #starting: Promise<unknown> = Promise.resolve();
  /** Looks at endpoints that notifications named. */
  readonly #due = new Batches<string, unknown>();

  constructor(deps: ActivityDeps, deliveries: Pick<EndpointDeliveries, "wake">) {
    this.#deps = deps;
    this.#deliveries = deliveries;
  }

  /** Begins, once the cluster is reached. */
  connected(client: Client): void {
    this.#client = client;
    const { progress, stopping } = this.#deps;
    stopping.addEventListener("abort", () => this.#notified.resolve(), { once: true });
    this.#loops = Promise.all([
      this.#listen(),
      this.#takeAll(progress.watch("relay", STALL_LIMIT_MS)),
      this.#sweepAll(progress.watch("relay sweep", STALL_LIMIT_MS)),
    ]);
  }

  get ageSeconds(): number {
    return (performance.now() - this.#movedAt) / 1_000;
  }

  async close(): Promise<void> {
    await this.#loops;
    await this.#starting;
  }

  async #takeAll(watched: Watched): Promise<void> {
    const { stopping, orm } = this.#deps;
    for (let after = ""; !stopping.aborted; ) {
      const beganAt = performance.now();
      this.#notified = Promise.withResolvers();
      try {
        const { taken, webhookIds, lastTeam } = await fanOut(orm.em.fork(), after);
        const notHere = this.#deliveries.wake(webhookIds);
        // Also those that this process serves: see `readDueEndpoints`.
        const served = webhookIds.size > 0 ? await this.#startFree([...webhookIds]) : new Set();
        const elsewhere = notHere.filter((webhookId) => served.has(webhookId));
        if (elsewhere.length > 0) await notifyDue(orm.em.fork(), elsewhere);
        this.#movedAt = performance.now();
        watched.moved();
        const isEmpty = taken === 0 && after === "";
        after = lastTeam;
        const restMs = beganAt + Math.min(taken * POLL_MS_PER_CHANGE, MOST_BUSY_POLL_MS) - performance.now();
        if (restMs > 0) await pause(restMs, stopping);
        if (!isEmpty) continue;
      } catch (error) {
        after = "";
        this.#noteFailure(error);
        await pause(POLL_MS, stopping);
      }
      const timer = setTimeout(this.#notified.resolve, POLL_MS);
      await this.#notified.promise;
      clearTimeout(timer);
    }
  }

  /** Starts those of the endpoints that no activity serves. @param webhookIds undefined for a sweep @returns the others */
  async #startFree(webhookIds?: readonly string[]): Promise<Set<string>> {
    const { orm, log, stopping } = this.#deps;
    const client = this.#client;
    if (!client) return new Set();
    const nameOf = ({ id, epoch }: DueEndpoint) => `${id}/${epoch}`;
    const due = await readDueEndpoints(orm.em.fork(), webhookIds);
    const free = due.filter((endpoint) => !endpoint.isServed && !this.#started.has(nameOf(endpoint)));
    for (const endpoint of free) this.#started.add(nameOf(endpoint));
    const start = async (endpoint: DueEndpoint) => {
      try {
        if (!stopping.aborted) await this.#startOne(client, endpoint);
      } finally {
        setTimeout(() => this.#started.delete(nameOf(endpoint)), START_AGAIN_MS).unref();
      }
    };
    if (free.length > 0)
      this.#starting = this.#starting.then(() => forEachAlone(client, log, "endpoints", free, start));
    return new Set(due.flatMap(({ id, isServed }) => (isServed ? [id] : [])));
  }

  async #sweepAll(watched: Watched): Promise<void> {
    const { stopping } = this.#deps;
    while (!stopping.aborted) {
      await pause(SWEEP_EVERY_MS, stopping);
      try {
        await this.#startFree();
      } catch (error) {
        this.#noteFailure(error);
      }
      watched.moved();
    }
  }

  #noteFailure(error: unknown): void {
    if (this.#deps.stopping.aborted) return;
    this.#deps.countRelayFailure();
    this.#deps.log.error({ err: error }, "the relay failed; tried again soon");
  }

  /**
   * Starts the workflow of an endpoint, or wakes it: a start that used the existing workflow would be lost where that sleeps or is
   * about to end.
   */
  async #startOne({ workflow }: Client, { id, teamId }: DueEndpoint): Promise<void> {
    const start = endpointStart({ webhookId: id, teamId });
    try {
      await workflow.start<typeof webhookEndpointWorkflow>("webhookEndpointWorkflow", {
        ...start,
        workflowIdConflictPolicy: "FAIL",
        // Temporal 1.29 does not compare the versions of a deployment in such a start: versioned workers use the queue alone.
        requestEagerStart: this.#deps.env.WORKER_BUILD_ID === undefined,
      });
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
      await workflow.signalWithStart("webhookEndpointWorkflow", { ...start, signal: WAKE_UP });
    }
  }

  #onNotification({ channel, payload }: pg.Notification): void {
    if (channel === OUTBOX_CHANNEL || !payload) this.#notified.resolve();
    // Sent by the API or by another relay: where no run serves it, it is started.
    else if (this.#deliveries.wake([payload]).length > 0) {
      this.#due
        .join("", payload, (webhookIds) => this.#startFree(webhookIds))
        .catch((error) => this.#noteFailure(error));
    }
  }

  async #listen(): Promise<void> {
    const { env, stopping, log } = this.#deps;
    while (!stopping.aborted) {
      const client = new pg.Client({
        connectionString: env.DATABASE_URL,
        application_name: "mailkeel relay",
        connectionTimeoutMillis: LISTEN_ANSWER_MS,
        query_timeout: LISTEN_ANSWER_MS,
        ...KEEP_ALIVE,
      });
      const ended = new Promise<true>((resolve) => {
        client.once("end", () => resolve(true));
        // A second error without a listener would end the process.
        client.on("error", () => resolve(true));
      });
      try {
        await client.connect();
        client.on("notification", (notification) => this.#onNotification(notification));
        await client.query(`listen ${OUTBOX_CHANNEL}; listen ${DUE_CHANNEL}`);
        // Notifications may have been sent before this connection listened.
        this.#notified.resolve();
        // One that is cut off behind a proxy gets no notification, and no error either.
        while (!(await Promise.race([ended, pause(LISTEN_CHECK_MS, stopping).then(() => stopping.aborted)]))) {
          await client.query("select 1");
        }
      } catch (error) {
        log.warn({ err: error }, "the relay cannot listen; it polls");
      }
      await client.end().catch(() => undefined);
      await pause(LISTEN_AGAIN_MS, stopping);
    }
  }
}
