import assert from "node:assert/strict";
import type { Client, WorkflowHandle } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { REPLAYABLE, requestReplay } from "../../domain/webhooks/bulk-replay.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { deliveryWorkflowId, replayWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam } from "../support/factories.ts";
import { type Behaviour, openReceiver } from "../support/receiver.ts";
import { emitSome, makeEndpoint, type TestEndpoint } from "../support/webhooks.ts";
import {
  askToWait,
  makeOverdue,
  type Row,
  reconcileUntil,
  repairSecret,
  setEndpoint,
  setReplayRate,
  takePlaces,
  untilAtRest,
  untilDetails,
  untilLog,
  untilOver,
  workflowOf,
} from "../webhooks/observing.ts";

const TEN_MINUTES = 600;
/** A part of an attempt begins requests for so long; this many slow ones take longer than one part. */
const SLOW_MS = 1_500;
const SLOW_DELIVERIES = 60;
/** More than a run's history takes before it continues as a new run. */
const UPDATES_OF_A_LONG_RUN = 40;

interface Delivery {
  team: TestTeam;
  endpoint: TestEndpoint;
  /** How its endpoint answers from now on. */
  answer(behave: Behaviour): void;
}

const status =
  (code: number): Behaviour =>
  (_, response) =>
    void response.writeHead(code).end();

const slow: Behaviour = (_, response) => void setTimeout(() => response.writeHead(204).end(), SLOW_MS);

/**
 * Each path of a delivery or a bulk replay: it takes it there and gives the workflow's id; the history is read once the
 * workflow has ended.
 */
export async function deliveryPaths(temporal: Client): Promise<Record<string, () => Promise<string>>> {
  const behaviours = new Map<string, Behaviour>();
  const receiver = await openReceiver((received, ...rest) =>
    (behaviours.get(received.path) ?? status(204))(received, ...rest),
  );

  async function endpointThat(behave: Behaviour, set: Record<string, unknown> = {}): Promise<Delivery> {
    const path = `/${newId("webhook")}`;
    const answer = (next: Behaviour) => void behaviours.set(path, next);
    answer(behave);
    const team = await makeTeam();
    return { team, endpoint: await makeEndpoint(team, { url: `${receiver.origin}${path}`, set }), answer };
  }
  const idOf = (row: Row | undefined): string => {
    assert.ok(row?.group_id);
    return deliveryWorkflowId(row.group_id);
  };
  /** The relay claims first and starts then. */
  async function begun(workflowId: string): Promise<string> {
    const started = () => temporal.workflow.getHandle(workflowId).describe();
    await eventually(started, { what: "the workflow" });
    return workflowId;
  }
  async function deliver(to: Delivery, count = 1): Promise<string> {
    await emitSome(to.team, count);
    const [row] = await untilLog(to.team, to.endpoint.id, (log) => Boolean(log[0]?.group_id));
    return begun(idOf(row));
  }
  /** Of one delivery that failed once and waits. */
  async function waiting(): Promise<Delivery & { row: Row }> {
    const to = await endpointThat(askToWait(TEN_MINUTES));
    await emitSome(to.team, 1);
    const log = await untilLog(to.team, to.endpoint.id, ([row]) => row?.status === "RETRYING");
    return { ...to, row: await untilAtRest(temporal, log[0]) };
  }
  /** Makes a history long: the workflow continues as a new run. */
  async function untilNextRun(handle: WorkflowHandle): Promise<void> {
    const { runId } = await handle.describe();
    await eventually(
      async () => {
        await handle.executeUpdate("retryNow");
        return (await handle.describe()).runId !== runId;
      },
      { what: "a second run" },
    );
  }
  async function held() {
    const to = await waiting();
    const handle = workflowOf(temporal, to.row);
    await handle.terminate("by mistake");
    await makeOverdue(to.team, to.endpoint.id);
    await reconcileUntil(temporal, "its return", async () => (await handle.describe()).status.name === "RUNNING");
    await untilDetails(handle, /terminated/);
    to.answer(status(204));
    return { ...to, handle };
  }
  /** One whose endpoint answers its first attempt when it is told to. */
  async function hanging() {
    const answers: (() => void)[] = [];
    const to = await endpointThat((...args) => void answers.push(() => status(500)(...args)));
    const handle = temporal.workflow.getHandle(await deliver(to));
    await eventually(() => answers.length > 0, { what: "the request" });
    const fail = () => {
      to.answer(status(204));
      for (const answer of answers) answer();
    };
    return { handle, fail };
  }
  /** A bulk replay of deliveries that failed. */
  async function replay(count: number, perSecond: number): Promise<string> {
    return (await requestedReplay(count, perSecond)).workflowId;
  }
  async function requestedReplay(count: number, perSecond: number) {
    const to = await endpointThat(status(410));
    await emitSome(to.team, count);
    await untilOver(to.team, to.endpoint.id, count);
    to.answer(status(204));
    const since = new Date("2020-01-01");
    const until = new Date(Date.now() + 60_000);
    const filter = { teamId: null, webhookId: to.endpoint.id, statuses: [...REPLAYABLE], since, until };
    const id = await requestReplay(to.team.em, filter, { perSecond, total: count });
    return { team: to.team, id, workflowId: await begun(replayWorkflowId(id)) };
  }

  return {
    "delivery-delivered": async () => deliver(await endpointThat(status(204)), 3),

    // The first attempt is a local activity.
    "delivery-delivered-at-once": async () => {
      const to = await endpointThat(status(204));
      await sql`update webhook_health set last_success_at = now() where webhook_id = ${to.endpoint.id}`.execute(
        kysely(to.team.em),
      );
      return deliver(to, 3);
    },

    "delivery-retried-then-delivered": async () => {
      let times = 0;
      return deliver(await endpointThat((...args) => status(++times < 3 ? 500 : 204)(...args)));
    },

    "delivery-exhausted": async () => deliver(await endpointThat(status(500))),

    "delivery-blocked": async () => {
      const to = await endpointThat(status(204), { url: "http://127.0.0.1:9/" });
      return deliver(to);
    },

    "delivery-endpoint-off": async () => {
      const { team, endpoint, row } = await waiting();
      await setEndpoint(team, endpoint.id, { active: false, disabled_reason: "manual" });
      await workflowOf(temporal, row).executeUpdate("retryNow");
      return idOf(row);
    },

    "delivery-slow": async () => deliver(await endpointThat(slow), SLOW_DELIVERIES),

    // Its first attempt is a local activity, which ends after two seconds.
    "delivery-in-parts": async () => {
      const to = await endpointThat(slow);
      await sql`update webhook_health set last_success_at = now() where webhook_id = ${to.endpoint.id}`.execute(
        kysely(to.team.em),
      );
      return deliver(to, SLOW_DELIVERIES);
    },

    // Its deliveries wait in Postgres then; other workflows probe the endpoint.
    "delivery-endpoint-failing": async () => deliver(await endpointThat(status(500)), FAILING_AFTER),

    "delivery-places-taken": async () => {
      const to = await endpointThat(status(500));
      await takePlaces(to.team, to.endpoint.id);
      return deliver(to);
    },

    "delivery-step-failing-then-retried": async () => {
      const { team, endpoint, answer } = await endpointThat(status(204), { encrypted_secret: "?" });
      const workflowId = await deliver({ team, endpoint, answer });
      const handle = temporal.workflow.getHandle(workflowId);
      await untilDetails(handle, /failed three times/);
      await repairSecret(team, endpoint);
      await handle.executeUpdate("retryNow");
      return workflowId;
    },

    "delivery-step-failing-then-cancelled": async () => {
      const to = await endpointThat(status(204), { encrypted_secret: "?" });
      const workflowId = await deliver(to);
      const handle = temporal.workflow.getHandle(workflowId);
      await untilDetails(handle, /failed three times/);
      await handle.executeUpdate("cancel");
      return workflowId;
    },

    "delivery-step-failing-continued-as-new": async () => {
      const to = await endpointThat(status(204), { encrypted_secret: "?" });
      const workflowId = await deliver(to);
      const handle = temporal.workflow.getHandle(workflowId);
      await untilDetails(handle, /failed three times/);
      await untilNextRun(handle);
      await repairSecret(to.team, to.endpoint);
      await handle.executeUpdate("retryNow");
      return workflowId;
    },

    "delivery-retry-now": async () => {
      const { row, answer } = await waiting();
      answer(status(204));
      await workflowOf(temporal, row).executeUpdate("retryNow");
      return idOf(row);
    },

    "delivery-cancelled": async () => {
      const { row } = await waiting();
      await workflowOf(temporal, row).executeUpdate("cancel");
      return idOf(row);
    },

    "delivery-cancelled-in-the-ui": async () => {
      const { row } = await waiting();
      await workflowOf(temporal, row).cancel();
      return idOf(row);
    },

    "delivery-held-then-resumed": async () => {
      const { handle } = await held();
      await handle.executeUpdate("retryNow");
      return handle.workflowId;
    },

    "delivery-held-then-cancelled": async () => {
      const { handle } = await held();
      await handle.executeUpdate("cancel");
      return handle.workflowId;
    },

    "delivery-continued-as-new": async () => {
      const { handle, fail } = await hanging();
      // Each update makes the history longer.
      for (let count = 0; count < UPDATES_OF_A_LONG_RUN; count++) await handle.executeUpdate("retryNow");
      fail();
      await untilDetails(handle, /1 left/);
      await untilNextRun(handle);
      return handle.workflowId;
    },

    "bulk-replay": () => replay(5, 2),

    "bulk-replay-paused": async () => {
      const workflowId = await replay(8, 2);
      const handle = temporal.workflow.getHandle(workflowId);
      await handle.executeUpdate("pause");
      await untilDetails(handle, /Paused/);
      await handle.executeUpdate("resume");
      return workflowId;
    },

    "bulk-replay-step-failing-then-retried": async () => {
      const { team, id, workflowId } = await requestedReplay(2, -1);
      const handle = temporal.workflow.getHandle(workflowId);
      await untilDetails(handle, /failed three times/);
      await setReplayRate(team, id, 10);
      await handle.executeUpdate("retryNow");
      return workflowId;
    },

    "bulk-replay-continued-as-new": () => replay(20, 1),
  };
}
