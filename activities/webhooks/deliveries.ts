import { watchEventLoop } from "../../config/process-load.ts";
import type { EntityManager } from "../../db/orm.ts";
import { closeAttempt } from "../../domain/webhooks/attempts.ts";
import { cancelGroup } from "../../domain/webhooks/end-group.ts";
import { openAttempt } from "../../domain/webhooks/open-attempt.ts";
import { GROUP_SIZE } from "../../domain/webhooks/plan-groups.ts";
import { MOST_TAKEN, takeMore } from "../../domain/webhooks/take-more.ts";
import type { ActivityDeps } from "../deps.ts";
import { whileBeating } from "../heartbeat.ts";
import { AttemptSlice, type Counts } from "./attempt-slice.ts";
import type { BusyEndpoints } from "./busy-endpoints.ts";
import type { DeliveryClient } from "./http-client.ts";
import { LateEndpoints } from "./late-endpoints.ts";
import { SharedPlaces } from "./shared-places.ts";
import { SuccessWriter } from "./success-writer.ts";

/** No request begins later than this in one activity: with the longest request it ends within 30 s. */
const BEGIN_FOR_MS = 14_000;
/** The same for an attempt that is to be brief. */
const BEGIN_BRIEFLY_MS = 2_000;

/**
 * For how long an attempt takes more deliveries, in ms. Its workflow's commands may have to wait meanwhile, and a local
 * activity of 8 s and more would make a further workflow task.
 */
const TAKE_FOR_MS = 5_000;
/** For how many looks in a row that find nothing a group of a busy endpoint waits. */
const QUIET_LOOKS = 2;

/**
 * Requests that one process has in flight at once, beside the reserve. A connection that waits for its answer takes about 100 KB with what it
 * leaves to the garbage collector. A team alone may have two thirds of them, 840: see `MOST_LATE_REQUESTS`.
 */
export const MOST_REQUESTS = 1_260;
/** A reserve beside them, for teams that come when other teams' hanging endpoints hold those. */
export const RESERVED_REQUESTS = 240;

/** Connections to Postgres that attempts leave to the relay and to the other work of their process. */
const OTHER_CONNECTIONS = 2;

export interface AttemptRequest {
  groupId: string;
  teamId: string;
  /** The first is 1. */
  attempt: number;
  /** Attempts before this one that operators asked for, which use up none of the ladder. */
  extra?: number;
  /** This is one of those. */
  isExtra?: boolean;
  /** Until the next attempt; null on the last. */
  retryInMs: number | null;
  /** The length of the ladder. */
  keepForMs: number;
  /** Leaves requests that would begin late to the next slice. */
  brief?: boolean;
}

export type AttemptResult =
  /** Time is up and some deliveries are not attempted yet: continue at once. */
  | ({ next: "more"; reason: string } & Counts)
  | ({ next: "retry"; left: number; waitMs: number; nextAttemptAt: string; reason: string } & Counts)
  /** Nothing is left to the workflow: all have ended but those that wait in Postgres again. */
  | ({ next: "done"; returned?: number } & Counts);

export interface DeliveryActivities {
  /** Attempts the deliveries of a group that are due; at most 30 s. */
  attemptGroup(request: AttemptRequest): Promise<AttemptResult>;
  /** Gives up the deliveries of a group that have not ended. @returns how many */
  cancelGroup(groupId: string): Promise<number>;
}

interface Deps extends Pick<ActivityDeps, "env" | "orm" | "vault" | "stopping" | "countAttempts" | "log"> {
  client: Pick<DeliveryClient, "post">;
  /** Called when an endpoint may have room for another group. */
  onRoom: () => void;
  busyEndpoints: BusyEndpoints;
}

export function createDeliveryActivities(given: Deps): DeliveryActivities {
  const { orm, env, onRoom } = given;
  const connections = new SharedPlaces(Math.max(1, env.DATABASE_POOL_MAX - OTHER_CONNECTIONS));
  const deps = {
    ...given,
    requests: new SharedPlaces(MOST_REQUESTS, RESERVED_REQUESTS),
    connections,
    successes: new SuccessWriter(orm.em, connections),
    lateEndpoints: new LateEndpoints(watchEventLoop()),
  };
  return {
    attemptGroup: async (request) => {
      const attempt = () => attemptGroup(deps, request);
      // A local activity has no heartbeat: the workflow task it runs in is given to another worker.
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

/** The dependencies that the attempts of a process share. */
interface SharedDeps extends Deps {
  /** Requests that this process may have in flight. */
  requests: SharedPlaces;
  /** Connections to Postgres that attempts may use. */
  connections: SharedPlaces;
  successes: SuccessWriter;
  lateEndpoints: LateEndpoints;
}

async function attemptGroup(deps: SharedDeps, request: AttemptRequest): Promise<AttemptResult> {
  const { groupId, teamId, attempt, extra = 0, isExtra = false, retryInMs, keepForMs, brief = false } = request;
  const em = deps.orm.em.fork();
  const { connections } = deps;
  const takeUntil = performance.now() + TAKE_FOR_MS;
  const opened = await connections.run(teamId, () => openAttempt(em, { groupId, attempt, extra, keepForMs }));
  if (opened.state === "returned") {
    return { next: "done", succeeded: 0, failed: 0, blocked: 0, returned: opened.deliveries };
  }
  if (opened.state === "ended") {
    return { next: "done", succeeded: 0, failed: opened.failed, blocked: opened.blocked };
  }

  const { epoch, isProbe, mayGiveUp } = opened;
  const isLast = retryInMs === null && mayGiveUp;
  // The last attempt of the ladder is left to a delivery that a probe may not give up yet.
  const ofLadder = attempt - extra - (isExtra ? 1 : 0);
  const attemptsUsed = retryInMs === null && !isLast ? ofLadder - 1 : ofLadder;
  const close = () => connections.run(teamId, () => closeAttempt(em, { groupId, epoch, attemptsUsed }));
  let slice: AttemptSlice;
  try {
    slice = new AttemptSlice(deps, em, teamId, opened.destination, { retryInMs: retryInMs ?? 0, isLast, isProbe });
  } catch (error) {
    await close();
    throw error;
  }
  const { webhookId } = opened.destination;
  const sent = await slice.send(opened.due, brief ? BEGIN_BRIEFLY_MS : BEGIN_FOR_MS);
  const { endpointVersion } = opened;
  const running = { groupId, teamId, webhookId, epoch, given: opened.due.length, takeUntil };
  const mayTakeMore = !sent && endpointVersion !== null;
  const more = mayTakeMore ? await sendMore(deps, em, slice, { ...running, endpointVersion }) : { failed: 0 };
  const fault = sent ?? more.fault;
  // A delivery that was not sent has no unknown outcome: its row stays PENDING for the next try.
  const { pending, retrying, waitMs, nextAttemptAt, returned } = await close();
  deps.busyEndpoints.noteEnd(webhookId);
  if (fault) throw fault.reason;
  const { reason } = slice;
  const counts = { ...slice.counts, failed: slice.counts.failed + opened.failed + more.failed };
  if (pending > 0) return { next: "more", ...counts, reason };
  if (returned > 0) return { next: "done", ...counts, returned };
  if (waitMs === null || nextAttemptAt === null) return { next: "done", ...counts };
  return { next: "retry", ...counts, left: retrying, waitMs, nextAttemptAt, reason };
}

interface RunningAttempt extends Pick<AttemptRequest, "groupId" | "teamId"> {
  webhookId: string;
  endpointVersion: string;
  epoch: number;
  /** Deliveries that it began with. */
  given: number;
  /** It takes more until then, by `performance.now()`. */
  takeUntil: number;
}

/**
 * Attempts new deliveries that came since a group's attempt began, as long as all arrive in good time: another group for
 * them would cost Temporal and Postgres as much as many deliveries do. At a busy endpoint it also waits for some.
 * @returns how many were ended because their event is gone, and a fault of this process
 */
async function sendMore(
  deps: SharedDeps,
  em: EntityManager,
  slice: AttemptSlice,
  { groupId, teamId, webhookId, endpointVersion, epoch, given, takeUntil }: RunningAttempt,
): Promise<{ failed: number; fault?: { reason: unknown } | undefined }> {
  const { connections, busyEndpoints, stopping } = deps;
  const watch = busyEndpoints.watch(webhookId);
  let failed = 0;
  // At an endpoint that takes longer, the last requests of so many would begin too late.
  let limit = GROUP_SIZE;
  // A group that is not full had taken all that waited.
  if (!watch && given < GROUP_SIZE) return { failed };
  try {
    for (let quietLooks = 0; slice.isSwift && performance.now() < takeUntil && !stopping.aborted; ) {
      watch?.reset();
      const more = await connections.run(teamId, () => takeMore(em, { groupId, epoch, endpointVersion, limit }));
      failed += more.failed;
      if (more.due.length > 0) {
        quietLooks = 0;
        const sentFrom = performance.now();
        const fault = await slice.send(more.due, BEGIN_BRIEFLY_MS);
        if (fault) return { failed, fault };
        limit = performance.now() - sentFrom < BEGIN_BRIEFLY_MS / 2 ? MOST_TAKEN : GROUP_SIZE;
      } else if (!watch || quietLooks++ === QUIET_LOOKS) break;
      else await watch.forDeliveries();
    }
    return { failed };
  } finally {
    watch?.end();
  }
}
