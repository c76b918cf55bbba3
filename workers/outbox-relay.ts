import {
  type Client,
  WorkflowExecutionAlreadyStartedError,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
} from "@temporalio/client";
import pg from "pg";
import type { ActivityDeps } from "../activities/deps.ts";
import { watchProcessor } from "../activities/webhooks/process-load.ts";
import type { Watched } from "../config/progress.ts";
import { KEEP_ALIVE } from "../db/pool.ts";
import { noteReplayStarted, unstartedReplays } from "../domain/webhooks/bulk-replay.ts";
import { fanOut } from "../domain/webhooks/fan-out.ts";
import { formGroups, type Group, unstartedGroups } from "../domain/webhooks/grouping.ts";
import { RELAY_CHANNEL } from "../domain/webhooks/notify-relay.ts";
import { giveLeadUp, LEAD_SECONDS, takeLead } from "../domain/webhooks/relay-lead.ts";
import { deliveryStart, replayStart } from "../workflows/start.ts";
import type { webhookDeliveryWorkflow } from "../workflows/webhook-delivery.ts";
import type { webhookReplayWorkflow } from "../workflows/webhook-replay.ts";
import { pause } from "./pause.ts";

/** How often the relay looks without a notification, and one that does not lead whether it does now. */
const POLL_MS = 500;
/**
 * The poll interval under load: the least time from one look that found work to the next, and how much longer it is for each
 * change that the look found. With fewer looks each finds more, which costs Postgres and Temporal less; an idle relay
 * takes new events at once.
 */
const LEAST_BUSY_POLL_MS = 40;
const POLL_MS_PER_CHANGE = 4;
const MOST_BUSY_POLL_MS = 140;
/** How often it looks for groups whose workflow was never started. */
const SWEEP_EVERY_MS = 2_000;
const SWEEP_GROUPS = 200;
/**
 * Workflows that are being started at once. Not p-limit: `#start` also has to wait until one more may begin, so that a
 * pass forms no groups faster than Temporal takes their workflows.
 */
const STARTS = 16;
const LISTEN_AGAIN_MS = 1_000;
/** How often the connection for notifications is tried, and how long it may take to answer. */
const LISTEN_CHECK_MS = 30_000;
const LISTEN_ANSWER_MS = 10_000;
/** A relay renews its lead after this time, well before it lapses. */
const RENEW_LEAD_MS = (LEAD_SECONDS * 1_000) / 2;
/** How long a relay that failed leaves the lead to others: they look for it every `POLL_MS`. */
const REST_MS = 1_000;
/** How long the loop may go without a pass that succeeds. */
const PASS_LIMIT_MS = 60_000;

/**
 * Takes events from the outbox to endpoints: writes their deliveries, puts waiting deliveries into groups and starts a
 * workflow for each group. All is committed before Temporal is called, so that nothing is lost between the two: a start
 * that finds its workflow there is a success, and a group without one is found by the next sweep, of this or any other
 * relay. The statements are in domain/webhooks/fan-out.ts and grouping.ts.
 *
 * Of all relays one at a time does this: it leads. The others start what the sweep finds, and take the lead over.
 */
export class OutboxRelay {
  readonly #deps: ActivityDeps;
  readonly #onWaiting: (webhookIds: Iterable<string>) => void;
  #client: Client | undefined;
  #loop: Promise<void> = Promise.resolve();
  #listening: Promise<void> = Promise.resolve();
  /** When it last looked for events, or who leads, without a failure, by `performance.now()`; at first its start. */
  #lookedAt = performance.now();
  /** A notification came since the latest look began. */
  #notified = false;
  #endWait: (() => void) | undefined;
  /** Until when this relay leads without asking Postgres, by `performance.now()`; 0 when it has to ask. */
  #leadsSurelyUntil = 0;
  /** Until when it leaves the lead to others. */
  #restsUntil = 0;
  #givingUp: Promise<void> = Promise.resolve();
  readonly #isProcessBusy = watchProcessor();
  /** Starts under way, by group. */
  readonly #starting = new Map<string, Promise<void>>();

  /** @param onWaiting is told the endpoints for which new deliveries wait */
  constructor(deps: ActivityDeps, onWaiting: (webhookIds: Iterable<string>) => void = () => undefined) {
    this.#deps = deps;
    this.#onWaiting = onWaiting;
  }

  /** Begins, once the cluster is reached. */
  connected(client: Client): void {
    this.#client = client;
    this.#deps.stopping.addEventListener("abort", () => this.wake(), { once: true });
    this.#listening = this.#listen();
    this.#loop = this.#run(this.#deps.progress.watch("relay", PASS_LIMIT_MS));
  }

  /** Seconds since it last looked for events, or who leads, without a failure. */
  get ageSeconds(): number {
    return (performance.now() - this.#lookedAt) / 1_000;
  }

  /** Looks now rather than at the next poll, if it leads. */
  wake(): void {
    this.#notified = true;
    this.#endWait?.();
  }

  async close(): Promise<void> {
    await Promise.all([this.#loop, this.#listening, ...this.#starting.values()]);
    await this.#givingUp;
  }

  async #run(watched: Watched): Promise<void> {
    const { stopping, log } = this.#deps;
    let sweepAt = 0;
    while (!stopping.aborted) {
      this.#notified = false;
      const lookedAt = performance.now();
      // After a failure: notifications must not make it try without a rest.
      let pollMs = POLL_MS;
      let leads = false;
      try {
        leads = await this.#leads();
        if (leads) pollMs = await this.#pass(watched);
        else this.#noteLook(watched);
        if (performance.now() >= sweepAt) {
          sweepAt = performance.now() + SWEEP_EVERY_MS;
          await this.#sweep();
        }
      } catch (error) {
        this.#deps.countRelayFailure();
        log.error({ err: error }, "the relay failed; tried again soon");
        this.#giveLeadUp();
      }
      const busyMs = lookedAt + pollMs - performance.now();
      if (busyMs > 0) await pause(busyMs, stopping);
      if (leads) await this.#notification(POLL_MS);
    }
    this.#giveLeadUp();
  }

  /** Whether this relay works for all of them. An idle one renews the lead before it is needed. */
  async #leads(): Promise<boolean> {
    const now = performance.now();
    if (now < this.#leadsSurelyUntil) return true;
    if (now < this.#restsUntil) return false;
    const { orm, workerId } = this.#deps;
    const leads = await takeLead(orm.em.fork(), workerId);
    this.#leadsSurelyUntil = leads ? now + RENEW_LEAD_MS : 0;
    return leads;
  }

  /** Leaves the work to another relay, without waiting for that: Postgres may be away. */
  #giveLeadUp(): void {
    if (this.#leadsSurelyUntil === 0) return;
    this.#leadsSurelyUntil = 0;
    this.#restsUntil = performance.now() + REST_MS;
    const { orm, workerId } = this.#deps;
    // Without it the lead lapses.
    this.#givingUp = giveLeadUp(orm.em.fork(), workerId).catch(() => undefined);
  }

  /** Waits for a notification, at most `ms`. */
  async #notification(ms: number): Promise<void> {
    if (this.#notified) return;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, ms);
      this.#endWait = () => {
        clearTimeout(timer);
        resolve();
      };
    });
    this.#endWait = undefined;
  }

  /** Fans out and forms groups until the outbox is empty. @returns the least time from its begin to the next pass, in ms */
  async #pass(watched: Watched): Promise<number> {
    const { orm, stopping } = this.#deps;
    let changes = 0;
    let found = false;
    for (let full = true; full && !stopping.aborted && (await this.#leads()); ) {
      const { taken, groups, waiting, ...rest } = await fanOut(orm.em.fork());
      full = rest.full;
      this.#onWaiting(waiting);
      for (const group of groups) await this.#start(group);
      const waited = await formGroups(orm.em.fork());
      for (const group of waited) await this.#start(group);
      changes += taken;
      found ||= taken > 0 || waited.length > 0;
      this.#noteLook(watched);
    }
    if (!found) return 0;
    return Math.min(LEAST_BUSY_POLL_MS + changes * POLL_MS_PER_CHANGE, MOST_BUSY_POLL_MS);
  }

  #noteLook(watched: Watched): void {
    this.#lookedAt = performance.now();
    watched.moved();
  }

  /** Starts workflows that were never started. */
  async #sweep(): Promise<void> {
    for (const group of await unstartedGroups(this.#deps.orm.em.fork(), SWEEP_GROUPS)) {
      if (!this.#starting.has(group.id)) await this.#start(group);
    }
    for (const replayId of await unstartedReplays(this.#deps.orm.em.fork())) await this.#startReplay(replayId);
  }

  async #startReplay(replayId: string): Promise<void> {
    try {
      await this.#client?.workflow.start<typeof webhookReplayWorkflow>(
        "webhookReplayWorkflow",
        replayStart({ replayId }),
      );
    } catch (error) {
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) throw error;
    }
    await noteReplayStarted(this.#deps.orm.em.fork(), replayId);
  }

  /** Resolves when the start is under way and another may begin. */
  async #start(group: Group): Promise<void> {
    const start = this.#startNow(group).finally(() => this.#starting.delete(group.id));
    this.#starting.set(group.id, start);
    while (this.#starting.size >= STARTS) await Promise.race(this.#starting.values());
  }

  async #startNow(group: Group): Promise<void> {
    const { env, log } = this.#deps;
    try {
      await this.#client?.workflow.start<typeof webhookDeliveryWorkflow>("webhookDeliveryWorkflow", {
        ...deliveryStart(group, env.WEBHOOK_LADDER_SECONDS, {
          localFirstAttempt: group.localFirstAttempt,
          ...(group.attempt > 1 ? { resume: { attempt: group.attempt } } : {}),
        }),
        requestEagerStart: this.#startsHere(),
        workflowIdConflictPolicy: WorkflowIdConflictPolicy.USE_EXISTING,
        // A workflow that an operator terminated is brought back by the reconciler, on hold.
        workflowIdReusePolicy: WorkflowIdReusePolicy.REJECT_DUPLICATE,
      });
    } catch (error) {
      if (error instanceof WorkflowExecutionAlreadyStartedError) return;
      log.warn({ groupId: group.id, err: error }, "a delivery workflow could not be started; the sweep tries again");
      this.#giveLeadUp();
    }
  }

  /**
   * Whether workflows begin in this process, without a queue: a single process writes the outcomes of more groups at once.
   * Once it is busy, any process takes them from the queue. Temporal does not look at the version of a process that begins a
   * workflow, so that those of a deployment always take them from it.
   */
  #startsHere(): boolean {
    return this.#deps.env.WORKER_BUILD_ID === undefined && !this.#isProcessBusy();
  }

  /** Receives notifications for as long as the process lives; while it cannot, the relay polls. */
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
        stopping.addEventListener("abort", () => resolve(true), { once: true });
      });
      try {
        await client.connect();
        client.on("notification", () => this.wake());
        await client.query(`listen ${RELAY_CHANNEL}`);
        // Notifications may have been sent before this connection listened.
        this.wake();
        // One that is cut off behind a proxy gets no notification, and no error either.
        while (!(await Promise.race([ended, pause(LISTEN_CHECK_MS, stopping).then(() => false)]))) {
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
