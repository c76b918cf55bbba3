import {
  type Client,
  WorkflowExecutionAlreadyStartedError,
  WorkflowIdConflictPolicy,
  WorkflowIdReusePolicy,
} from "@temporalio/client";
import pg from "pg";
import type { ActivityDeps } from "../activities/deps.ts";
import { watchProcessor } from "../config/process-load.ts";
import type { Watched } from "../config/progress.ts";
import { KEEP_ALIVE } from "../db/pool.ts";
import { noteReplayStarted, unstartedReplays } from "../domain/webhooks/bulk-replay.ts";
import { type FannedOut, fanOut } from "../domain/webhooks/fan-out.ts";
import { formGroups, type Group, UNSTARTED_UNTIL_SECONDS, unstartedGroups } from "../domain/webhooks/grouping.ts";
import { notifyRelay, RELAY_CHANNEL } from "../domain/webhooks/notify-relay.ts";
import { LEASE_SECONDS, releaseRelayLease, takeRelayLease } from "../domain/webhooks/relay-lease.ts";
import { deliveryStart, replayStart } from "../workflows/start.ts";
import type { webhookDeliveryWorkflow } from "../workflows/webhook-delivery.ts";
import type { webhookReplayWorkflow } from "../workflows/webhook-replay.ts";
import { GroupStarts } from "./group-starts.ts";
import { pause } from "./pause.ts";

/** How often the leader makes a pass without a notification, and how often a follower asks for the lease. */
const POLL_MS = 500;
/**
 * The poll interval under load: the least time from the start of a pass that found work to the next one, and how much longer it
 * is for each change that the pass found. With fewer passes each finds more, which costs Postgres and Temporal less; an idle
 * relay takes new events at once.
 */
const LEAST_BUSY_POLL_MS = 40;
const POLL_MS_PER_CHANGE = 4;
const MOST_BUSY_POLL_MS = 140;
/** How long the changes of a team wait while one of its endpoints is changed or deleted, before they are tried again. */
const CHANGING_REST_MS = 250;
/** How long the changes of a team with a malformed row wait. Only an operator can mend the row, and each try is logged. */
const MALFORMED_REST_MS = 10_000;
/** How often the leader sweeps: it looks for groups and replays whose workflow was never started. */
const SWEEP_EVERY_MS = 2_000;
/** After this long a sweep queues no more groups. The next one comes to those that are left. */
const SWEEP_FOR_MS = 5_000;
const LISTEN_AGAIN_MS = 1_000;
/** How often the connection for notifications is tried, and how long it may take to answer. */
const LISTEN_CHECK_MS = 30_000;
const LISTEN_ANSWER_MS = 10_000;
const LEASE_MS = LEASE_SECONDS * 1_000;
/** The leader renews its lease after this time, well before it expires. */
const RENEW_LEASE_MS = LEASE_MS / 2;
/** How long a leader that failed leaves the lease to others: they ask for it every `POLL_MS`. */
const YIELD_MS = 1_000;
/** How often a relay looks whether there is room for more groups. */
const ROOM_POLL_MS = 20;
/**
 * After so many failed starts of workflows in a row, or so many ms without the end of any while as many as may be are under way, this
 * process is presumed not to reach Temporal: it drops the groups that wait, and yields its lease.
 */
export const MOST_FAILED_STARTS = 5;
const STANDSTILL_MS = 3_000;
/** A loop is stalled after this time without progress. An answer that another relay holds the lease counts as progress. */
const STALL_LIMIT_MS = 60_000;

/**
 * Takes events from the outbox to endpoints: writes their deliveries, puts waiting deliveries into groups and starts a
 * workflow for each group. All is committed before Temporal is called, so that nothing is lost between the two: a start
 * that finds its workflow there is a success, and a group without one is found by the next sweep, of this or any other
 * relay. The statements are in domain/webhooks/fan-out.ts and grouping.ts.
 *
 * One relay at a time does this: the leader. Another one takes over when the lease expires or is released.
 */
export class OutboxRelay {
  readonly #deps: ActivityDeps;
  readonly #onWaiting: (webhookIds: Iterable<string>) => void;
  #client: Client | undefined;
  #loop: Promise<void> = Promise.resolve();
  #sweeps: Promise<void> = Promise.resolve();
  #listening: Promise<void> = Promise.resolve();
  /** When it last took a batch, or heard that another relay leads, by `performance.now()`; at first its start. */
  #movedAt = performance.now();
  /** A notification came since the latest pass began. */
  #notified = false;
  #endWait: (() => void) | undefined;
  /** The next batch begins with the team after this one. */
  #afterTeam = "";
  /** Teams that batches leave out, and until when, by `performance.now()`: their changes cannot be taken now. */
  readonly #leftOut = new Map<string, number>();
  /** When workflows were started, by the ids of their groups, for as long as a sweep looks at a group. */
  readonly #started = new Map<string, number>();
  /** When its lease ends, by `performance.now()`. */
  #leaseUntil = 0;
  /** The latest answer about the lease: another relay holds it. A leader may outlive its lease in a long batch, and still sweeps. */
  #isFollower = true;
  /** When a leader renews its lease. */
  #renewalAt = 0;
  /** Until when it leaves the lease to others. */
  #yieldsUntil = 0;
  #release: Promise<void> = Promise.resolve();
  #failedStarts = 0;
  readonly #isProcessBusy = watchProcessor();
  readonly #groupStarts = new GroupStarts((group) => this.#start(group));

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
    this.#loop = this.#run(this.#deps.progress.watch("relay", STALL_LIMIT_MS));
    this.#sweeps = this.#runSweeps(this.#deps.progress.watch("relay sweep", STALL_LIMIT_MS));
  }

  /** Seconds since it last took a batch, or heard that another relay leads. */
  get ageSeconds(): number {
    return (performance.now() - this.#movedAt) / 1_000;
  }

  /** Whether it holds the lease: it then takes events from the outbox and forms groups, for all relays. */
  get isLeader(): boolean {
    return performance.now() < this.#leaseUntil;
  }

  /** Makes a pass now rather than at the next poll, if it is the leader. */
  wake(): void {
    this.#notified = true;
    this.#endWait?.();
  }

  /** Wakes the leader, here or in another process: an endpoint has room for another group. */
  wakeLeader(): void {
    if (this.isLeader) this.wake();
    else notifyRelay(this.#deps.orm.em);
  }

  async close(): Promise<void> {
    await Promise.all([this.#loop, this.#sweeps, this.#listening]);
    await this.#groupStarts.close();
    await this.#release;
  }

  async #run(watched: Watched): Promise<void> {
    const { stopping } = this.#deps;
    while (!stopping.aborted) {
      this.#notified = false;
      const beganAt = performance.now();
      // After a failure too: notifications must not make it try without a rest.
      let pollMs = POLL_MS;
      try {
        if (await this.#ensureLease(watched)) pollMs = await this.#pass(watched);
      } catch (error) {
        this.#noteFailure(error);
        this.#yieldLease();
      }
      const restMs = beganAt + pollMs - performance.now();
      if (restMs > 0) await pause(restMs, stopping);
      if (this.isLeader) await this.#notification(POLL_MS);
    }
    this.#yieldLease();
  }

  /** A loop of its own, so that a pass does not wait for the end of a sweep. */
  async #runSweeps(watched: Watched): Promise<void> {
    const { stopping } = this.#deps;
    while (!stopping.aborted) {
      await this.#sweep(watched).catch((error) => this.#noteFailure(error));
      await pause(SWEEP_EVERY_MS, stopping);
    }
  }

  #noteFailure(error: unknown): void {
    this.#deps.countRelayFailure();
    this.#deps.log.error({ err: error }, "the relay failed; tried again soon");
  }

  /** Takes the lease, or renews it once it is a second old. @returns whether this relay leads */
  async #ensureLease(watched: Watched): Promise<boolean> {
    if (this.#groupStarts.standstillMs > STANDSTILL_MS) this.#giveUpStarts();
    const now = performance.now();
    if (this.isLeader && now < this.#renewalAt) return true;
    if (now < this.#yieldsUntil) return false;
    // A release that is under way would end the lease that is taken now.
    await this.#release;
    const { orm, workerId } = this.#deps;
    const askedAt = performance.now();
    const isTaken = await takeRelayLease(orm.em.fork(), workerId);
    this.#leaseUntil = isTaken ? askedAt + LEASE_MS : 0;
    this.#isFollower = !isTaken;
    this.#renewalAt = askedAt + RENEW_LEASE_MS;
    if (!isTaken) {
      this.#noteMove(watched);
      // The leader starts them: its sweep finds them.
      this.#groupStarts.dropWaiting();
    }
    // `#yieldLease` ran while Postgres was asked, and this answer may have taken the lease again.
    else if (performance.now() < this.#yieldsUntil) this.#releaseLease();
    return this.isLeader;
  }

  /** Leaves the groups that wait for their start to another relay. If there is none, its own next sweep finds them. */
  #giveUpStarts(): void {
    this.#groupStarts.dropWaiting();
    this.#yieldLease();
  }

  /** Leaves the lease to another relay, without waiting for the release: Postgres may be away. */
  #yieldLease(): void {
    // Also without it: a pass that failed may have outlived it, or it may just be asked for.
    this.#yieldsUntil = performance.now() + YIELD_MS;
    if (this.isLeader) this.#releaseLease();
  }

  #releaseLease(): void {
    this.#leaseUntil = 0;
    const { orm, workerId } = this.#deps;
    // If it fails, the lease expires by itself.
    const release = () => releaseRelayLease(orm.em.fork(), workerId).catch(() => undefined);
    this.#release = this.#release.then(release);
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

  /**
   * Takes batches and forms groups until the outbox is empty.
   * @returns how long after the start of this pass the next one may begin, in ms
   */
  async #pass(watched: Watched): Promise<number> {
    const { orm, stopping } = this.#deps;
    let changes = 0;
    let found = false;
    // A round that an earlier pass began does not show that nothing can be taken.
    let takenInRound = this.#afterTeam === "" ? 0 : 1;
    for (let callAgain = true; callAgain && !stopping.aborted && (await this.#ensureLease(watched)); ) {
      const batch = await fanOut(orm.em.fork(), this.#afterTeam, this.#teamsLeftOut());
      const { taken, groups, waiting, nextAfter, ...rest } = batch;
      this.#afterTeam = nextAfter;
      this.#leaveOut(batch);
      takenInRound += taken;
      // A round took nothing: the rows that are left are locked or malformed, or an endpoint of their team is being changed.
      callAgain = rest.callAgain && (nextAfter !== "" || takenInRound > 0);
      if (nextAfter === "") takenInRound = 0;
      this.#onWaiting(waiting);
      for (const group of groups) this.#queueStart(group);
      const waited = await formGroups(orm.em.fork());
      for (const group of waited) this.#queueStart(group);
      // Not until they are started: new endpoints of one team would hold up the changes of all.
      await this.#untilRoom(watched, () => this.#ensureLease(watched));
      changes += taken;
      found ||= taken > 0 || waited.length > 0;
      this.#noteMove(watched);
    }
    if (!found) return 0;
    return Math.min(LEAST_BUSY_POLL_MS + changes * POLL_MS_PER_CHANGE, MOST_BUSY_POLL_MS);
  }

  #noteMove(watched: Watched): void {
    this.#movedAt = performance.now();
    watched.moved();
  }

  #teamsLeftOut(): string[] {
    const now = performance.now();
    for (const [teamId, until] of this.#leftOut) {
      if (until <= now) this.#leftOut.delete(teamId);
    }
    return [...this.#leftOut.keys()];
  }

  /** Leaves out teams whose changes a batch could not take. Otherwise each batch would have less room for those of others. */
  #leaveOut({ changing, malformed }: Pick<FannedOut, "changing" | "malformed">): void {
    const now = performance.now();
    for (const teamId of changing) this.#leftOut.set(teamId, now + CHANGING_REST_MS);
    for (const [teamId, seq] of malformed) {
      this.#leftOut.set(teamId, now + MALFORMED_REST_MS);
      this.#deps.countRelayFailure();
      this.#deps.log.error({ seq }, "a row of the outbox is no JSON array; it and later ones of its team wait");
    }
  }

  /** Queues the starts of groups that have not begun, and starts replays that were not started, unless it follows. */
  async #sweep(watched: Watched): Promise<void> {
    const { orm, stopping } = this.#deps;
    const forgottenBefore = performance.now() - UNSTARTED_UNTIL_SECONDS * 1_000;
    for (const [id, startedAt] of this.#started) {
      if (startedAt > forgottenBefore) break;
      this.#started.delete(id);
    }
    // A follower would start again all that Temporal has not begun yet.
    if (!this.#isFollower) {
      const until = performance.now() + SWEEP_FOR_MS;
      for await (const group of unstartedGroups(orm.em.fork())) {
        if (stopping.aborted || performance.now() > until) break;
        this.#queueStart(group);
        await this.#untilRoom(watched, () => performance.now() < until);
        watched.moved();
      }
      for (const replayId of await unstartedReplays(orm.em.fork())) {
        if (stopping.aborted) break;
        await this.#startReplay(replayId).catch((error) => this.#noteFailure(error));
        watched.moved();
      }
    }
    watched.moved();
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

  /** Has the workflow of a group started when it is its turn, unless this relay has started it: Temporal may take long to begin it. */
  #queueStart(group: Group): void {
    if (!this.#started.has(group.id)) this.#groupStarts.add(group);
  }

  /** Waits until there is room for more groups, for as long as `mayWait`. */
  async #untilRoom(watched: Watched, mayWait: () => boolean | Promise<boolean>): Promise<void> {
    const { stopping } = this.#deps;
    while (!this.#groupStarts.hasRoom && !stopping.aborted && (await mayWait())) {
      await pause(ROOM_POLL_MS, stopping);
      watched.moved();
    }
  }

  /** Starts the workflow of a group. If it runs already, that is a success. */
  async #start(group: Group): Promise<void> {
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
      if (!(error instanceof WorkflowExecutionAlreadyStartedError)) {
        log.warn({ groupId: group.id, err: error }, "a delivery workflow could not be started; the sweep tries again");
        if (++this.#failedStarts >= MOST_FAILED_STARTS) this.#giveUpStarts();
        return;
      }
    }
    this.#failedStarts = 0;
    this.#started.set(group.id, performance.now());
  }

  /**
   * Whether to ask Temporal to give the first task of a workflow to this process, past the task queue: one process writes the
   * outcomes of all its groups together. While this process is busy, the next one that polls the queue gets the task.
   * Temporal 1.29 does not compare the versions of a deployment in such a start: versioned workers use the queue alone.
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
      });
      try {
        await client.connect();
        client.on("notification", () => this.wake());
        await client.query(`listen ${RELAY_CHANNEL}`);
        // Notifications may have been sent before this connection listened.
        this.wake();
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
