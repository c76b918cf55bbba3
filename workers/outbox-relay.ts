import { type Client, WorkflowExecutionAlreadyStartedError } from "@temporalio/client";
import pg from "pg";
import type { ActivityDeps } from "../activities/deps.ts";
import type { EndpointDeliveries } from "../activities/webhooks/deliver-due.ts";
import type { Watched } from "../config/progress.ts";
import { KEEP_ALIVE } from "../db/pool.ts";
import { unfinishedReplays } from "../domain/webhooks/bulk-replay.ts";
import { fanOut } from "../domain/webhooks/fan-out.ts";
import { DUE_CHANNEL, notifyDue, OUTBOX_CHANNEL } from "../domain/webhooks/notify.ts";
import { type DueEndpoint, readDue } from "../domain/webhooks/queue.ts";
import { WAKE_UP } from "../workflows/ids.ts";
import { endpointStart, replayStart } from "../workflows/start.ts";
import type { webhookEndpointWorkflow } from "../workflows/webhook-endpoint.ts";
import type { webhookReplayWorkflow } from "../workflows/webhook-replay.ts";
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
const STARTS = 16;
/** A run looks for deliveries for longer than this after its start: no other start is needed. */
const STARTED_FOR_MS = 500;
/** Temporal has taken the start: a sweep that asked again would add to what holds it up. A run that has begun has raised the epoch. */
const SWEPT_AGAIN_MS = 60_000;
/** For how long endpoints that notifications name are gathered. */
const GATHER_MS = 10;
const STALL_LIMIT_MS = 60_000;

/**
 * Takes changes from the outbox to the queues of endpoints, and has each queue served: by a run of this process, by a notification to
 * another process, or by the workflow of the endpoint, which it starts or wakes. All is committed before Temporal is called: the sweep
 * of any process finds an endpoint that no activity serves. Every process of the pool does this; none leads.
 */
export class OutboxRelay {
  readonly #deps: ActivityDeps;
  readonly #deliveries: Pick<EndpointDeliveries, "wake" | "notHere">;
  #client: Client | undefined;
  #loops: Promise<unknown> = Promise.resolve();
  /** When it last looked at the outbox, by `performance.now()`. */
  #movedAt = performance.now();
  #notified = Promise.withResolvers<void>();
  readonly #toStart = new Map<string, DueEndpoint>();
  /** The latest start of an endpoint from here: when it began, by `performance.now()`, and the epoch that it was to follow. */
  readonly #started = new Map<string, { at: number; epoch: number }>();
  readonly #starting = new Set<Promise<void>>();
  /** Endpoints that notifications named, which no run of this process serves. */
  readonly #due = new Set<string>();

  constructor(deps: ActivityDeps, deliveries: Pick<EndpointDeliveries, "wake" | "notHere">) {
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
    this.#toStart.clear();
    await Promise.allSettled(this.#starting);
  }

  async #takeAll(watched: Watched): Promise<void> {
    const { stopping, orm } = this.#deps;
    for (let after = ""; !stopping.aborted; ) {
      const beganAt = performance.now();
      if (after === "") this.#notified = Promise.withResolvers();
      try {
        const { taken, webhookIds, next } = await fanOut(orm.em.fork(), after);
        this.#deliveries.wake(webhookIds);
        // It also asks for those that this process serves: see `readDue`.
        const elsewhere = webhookIds.size > 0 ? await this.#startFree([...webhookIds]) : [];
        if (elsewhere.length > 0) await notifyDue(orm.em.fork(), elsewhere);
        this.#movedAt = performance.now();
        watched.moved();
        after = next?.after ?? "";
        if (next) continue;
        const restMs = beganAt + Math.min(taken * POLL_MS_PER_CHANGE, MOST_BUSY_POLL_MS) - performance.now();
        if (restMs > 0) await pause(restMs, stopping);
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

  /** Starts those of the endpoints that no activity serves. @returns those that an activity of another process serves */
  async #startFree(webhookIds: readonly string[]): Promise<string[]> {
    const endpoints = await readDue(this.#deps.orm.em.fork(), webhookIds);
    this.#start(endpoints, STARTED_FOR_MS);
    return this.#deliveries.notHere(endpoints.flatMap(({ webhookId, isServed }) => (isServed ? [webhookId] : [])));
  }

  async #sweepAll(watched: Watched): Promise<void> {
    const { stopping, orm } = this.#deps;
    /** Unfinished ones that Temporal knows: each is asked for once. */
    let knownReplays = new Set<string>();
    while (!stopping.aborted) {
      await pause(SWEEP_EVERY_MS, stopping);
      try {
        this.#start(await readDue(orm.em.fork()), SWEPT_AGAIN_MS);
        const unfinished = await unfinishedReplays(orm.em.fork());
        const started = new Set(unfinished.filter((id) => knownReplays.has(id)));
        for (const replayId of unfinished) {
          if (stopping.aborted) break;
          if (started.has(replayId)) continue;
          await this.#startReplay(replayId).then(
            () => started.add(replayId),
            (error) => this.#noteFailure(error),
          );
          watched.moved();
        }
        knownReplays = started;
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

  /** @param startedForMs an endpoint whose latest start from here was within this time, and begun by no run yet, needs no other */
  #start(endpoints: readonly DueEndpoint[], startedForMs: number): void {
    const now = performance.now();
    for (const [webhookId, { at }] of this.#started) {
      if (at > now - SWEPT_AGAIN_MS) break;
      this.#started.delete(webhookId);
    }
    for (const endpoint of endpoints) {
      const latest = this.#started.get(endpoint.webhookId);
      const isStarting = latest?.epoch === endpoint.epoch && latest.at > now - startedForMs;
      if (!endpoint.isServed && !isStarting) this.#toStart.set(endpoint.webhookId, endpoint);
    }
    this.#startNext();
  }

  #startNext(): void {
    for (const [webhookId, endpoint] of this.#toStart) {
      if (this.#starting.size >= STARTS) return;
      this.#toStart.delete(webhookId);
      const started = this.#startOne(endpoint).finally(() => {
        this.#starting.delete(started);
        this.#startNext();
      });
      this.#starting.add(started);
    }
  }

  /**
   * Starts the workflow of an endpoint, or wakes it: one that sleeps until a retry, or is about to end, does not look again by itself,
   * and a start that used the existing workflow would be lost.
   */
  async #startOne({ webhookId, teamId, epoch }: DueEndpoint): Promise<void> {
    const at = performance.now();
    const start = endpointStart({ webhookId, teamId });
    try {
      await this.#client?.workflow
        .start<typeof webhookEndpointWorkflow>("webhookEndpointWorkflow", {
          ...start,
          workflowIdConflictPolicy: "FAIL",
          // Temporal 1.29 does not compare the versions of a deployment in such a start: versioned workers use the queue alone.
          requestEagerStart: this.#deps.env.WORKER_BUILD_ID === undefined,
        })
        .catch(async (error) => {
          if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
          await this.#client?.workflow.signalWithStart("webhookEndpointWorkflow", { ...start, signal: WAKE_UP });
        });
      this.#started.delete(webhookId);
      this.#started.set(webhookId, { at, epoch });
    } catch (error) {
      this.#deps.log.warn(
        { webhookId, err: error },
        "an endpoint's workflow could not be started; the sweep tries again",
      );
    }
  }

  /** Begins a bulk replay that Temporal does not know. The reconciler continues or ends one whose workflow has ended. */
  async #startReplay(replayId: string): Promise<void> {
    try {
      await this.#client?.workflow.start<typeof webhookReplayWorkflow>("webhookReplayWorkflow", {
        ...replayStart({ replayId }),
        workflowIdReusePolicy: "REJECT_DUPLICATE",
      });
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
  }

  #onNotification({ channel, payload }: pg.Notification): void {
    if (channel === OUTBOX_CHANNEL || !payload) this.#notified.resolve();
    else {
      this.#deliveries.wake([payload]);
      // Sent by the API or by another relay: the run that serves it is woken, and if there is none, it is started.
      if (this.#deliveries.notHere([payload]).length === 0) return;
      if (this.#due.size === 0) setTimeout(() => void this.#serveDue(), GATHER_MS);
      this.#due.add(payload);
    }
  }

  async #serveDue(): Promise<void> {
    const webhookIds = [...this.#due];
    this.#due.clear();
    try {
      await this.#startFree(webhookIds);
    } catch (error) {
      this.#noteFailure(error);
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
