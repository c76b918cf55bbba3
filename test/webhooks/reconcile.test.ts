import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { REPLAYABLE, requestReplay } from "../../domain/webhooks/bulk-replay.ts";
import { deliveryWorkflowId, replayWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import {
  askToWait,
  assertAllHeaders,
  detailsOf,
  groupsOf,
  makeOverdue,
  type Row,
  receivingBesideTemporal,
  reconcileUntil,
  setReplayRate,
  states,
  untilDetails,
  untilLog,
  untilOver,
  untilWaiting,
  workflowOf,
} from "./observing.ts";

describe("The reconciler, of deliveries", () => {
  let receiver: Receiver;
  let temporal: Client;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });

  type Team = Awaited<ReturnType<typeof makeTeam>>;

  async function waiting(name: string): Promise<{ team: Team; endpoint: TestEndpoint; row: Row }> {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
    receiver.behave = askToWait(600);
    await emitSome(team, 1);
    const [row] = await untilWaiting(team, endpoint.id);
    assert.ok(row);
    await untilDetails(workflowOf(temporal, row), /left/);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    return { team, endpoint, row };
  }

  const deleteWorkflow = async (workflowId: string) => {
    await temporal.workflowService.deleteWorkflowExecution({
      namespace: temporal.options.namespace,
      workflowExecution: { workflowId },
    });
    const gone = () =>
      temporal.workflow
        .getHandle(workflowId)
        .describe()
        .then(
          () => false,
          () => true,
        );
    await eventually(gone, { what: "the loss" });
  };

  async function terminated(name: string) {
    const of = await waiting(name);
    const handle = workflowOf(temporal, of.row);
    const { runId } = await handle.describe();
    await handle.terminate("by mistake");
    await makeOverdue(of.team, of.endpoint.id);
    await reconcileUntil(temporal, "the workflow's return, on hold", async () => {
      const { status, searchAttributes, ...now } = await handle.describe();
      return status.name === "RUNNING" && now.runId !== runId && searchAttributes["NeedsOperator"]?.[0] === true;
    });
    return { ...of, handle };
  }

  it("restores deliveries whose workflow was terminated in the UI on hold, and sets NeedsOperator", async () => {
    const { team, endpoint, handle } = await terminated("terminated");
    assert.match(
      await untilDetails(handle, /terminated/),
      new RegExp(`^Endpoint ${endpoint.id}\\. .*retryNow, or cancel`),
    );
    const { searchAttributes } = await handle.describe();
    assert.deepEqual(searchAttributes["WebhookId"], [endpoint.id]);
    assert.deepEqual(states(await logOf(team, endpoint.id)), [[1, "RETRYING"]]);
    assert.equal(receiver.received.filter(({ path }) => path === "/terminated").length, 1, "it waits");

    await handle.executeUpdate("retryNow");
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "SUCCEEDED"],
    ]);
    assertAllHeaders(receiver, "/terminated", log, endpoint);
    assert.deepEqual(await handle.result(), { succeeded: 1, failed: 0, blocked: 0 });
    assert.deepEqual((await handle.describe()).searchAttributes["NeedsOperator"], [false]);
  });

  it("lets an operator give up deliveries that were restored on hold", async () => {
    const { team, endpoint, handle } = await terminated("given-up");
    assert.equal(await handle.executeUpdate("cancel"), "1 given up");
    assert.deepEqual(states(await untilOver(team, endpoint.id)), [[1, "FAILED"]]);
    assert.deepEqual(await groupsOf(team, endpoint.id), []);
  });

  it("rebuilds a workflow that Temporal lost, at the attempt that was next, and it continues by itself", async () => {
    const { team, endpoint, row } = await waiting("lost");
    await deleteWorkflow(deliveryWorkflowId(row.group_id ?? ""));
    receiver.behave = (_, response) => {
      receiver.behave = (_again, answer) => void answer.writeHead(204).end();
      response.writeHead(500).end();
    };
    await makeOverdue(team, endpoint.id);
    await reconcileUntil(temporal, "the next attempt", async () => (await logOf(team, endpoint.id)).length > 1);
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "FAILED"],
      [3, "SUCCEEDED"],
    ]);
    assert.equal(assertAllHeaders(receiver, "/lost", log, endpoint).length, 3);
    assert.deepEqual((await workflowOf(temporal, row).describe()).searchAttributes["NeedsOperator"], undefined);
  });

  it("repeats an attempt that was in flight when the worker and the workflow were lost", async () => {
    const { team, endpoint, row } = await waiting("lost-in-flight");
    await deleteWorkflow(deliveryWorkflowId(row.group_id ?? ""));
    // The state after an attempt has begun: its row is there, its outcome is not.
    await transaction(team.em, async (tx) => {
      const db = kysely(tx);
      await sql`update webhook_deliveries set status = 'PENDING', next_attempt_at = null, response_status = null,
        response_body = null, error_message = null where id = ${row.id}`.execute(db);
      await sql`update webhook_groups set attempting = true where id = ${row.group_id}`.execute(db);
    });
    await makeOverdue(team, endpoint.id);
    await reconcileUntil(temporal, "the next attempt", async () => (await logOf(team, endpoint.id)).length > 1);
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "SUCCEEDED"],
    ]);
    assert.match(log[0]?.error_message ?? "", /outcome is unknown/);
  });

  it("starts no second run beside a live one, however late that is", async () => {
    const { team, endpoint, row } = await waiting("alive");
    const late = await waiting("really-lost");
    const handle = workflowOf(temporal, row);
    const { runId } = await handle.describe();
    await deleteWorkflow(deliveryWorkflowId(late.row.group_id ?? ""));
    await makeOverdue(team, endpoint.id);
    await makeOverdue(late.team, late.endpoint.id);
    await reconcileUntil(temporal, "a run of the reconciler that found the other", async () =>
      (await logOf(late.team, late.endpoint.id)).some(({ status }) => status === "SUCCEEDED"),
    );
    assert.equal((await handle.describe()).runId, runId);
    assert.deepEqual(states(await logOf(team, endpoint.id)), [[1, "RETRYING"]]);
    assert.match(await detailsOf(handle), /1 left/);
    await handle.executeUpdate("cancel");
  });

  it("continues a bulk replay that Temporal lost, and ends one that an operator terminated", async () => {
    const team = await makeTeam();
    receiver.behave = (_, response) => void response.writeHead(410).end();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/bulk` });
    await emitSome(team, 8);
    await untilOver(team, endpoint.id, 8);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    const ask = async () => {
      const since = new Date("2020-01-01");
      const until = new Date(Date.now() + 60_000);
      const filter = { teamId: null, webhookId: endpoint.id, statuses: [...REPLAYABLE], since, until };
      const id = await requestReplay(team.em, filter, { perSecond: 1, total: 8 });
      const handle = temporal.workflow.getHandle(replayWorkflowId(id));
      await eventually(() => handle.executeUpdate("pause"), { what: "the workflow" });
      await untilDetails(handle, /Paused/);
      return { id, handle };
    };
    const progress = async (id: string) =>
      kysely(team.em.fork()).selectFrom("webhook_replays").selectAll().where("id", "=", id).executeTakeFirstOrThrow();

    const one = await ask();
    await one.handle.terminate("enough");
    await reconcileUntil(temporal, "its end", async () => (await progress(one.id)).completed_at !== null);
    const { replayed } = await progress(one.id);
    assert.ok(replayed >= 1 && replayed < 8);
    assert.equal((await one.handle.describe()).status.name, "TERMINATED");

    const two = await ask();
    await setReplayRate(team, two.id, 100);
    await deleteWorkflow(replayWorkflowId(two.id));
    await reconcileUntil(temporal, "its end", async () => (await progress(two.id)).completed_at !== null);
    assert.equal((await progress(two.id)).replayed + replayed, 8);
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === 8,
    );
    assert.equal(log.length, 16);
  });
});

describe("A relay that dies", () => {
  let receiver: Receiver;
  before(async () => {
    receiver = await openReceiver();
  });
  after(() => receiver.close());

  it("between the claim and the start leaves a group whose workflow the sweep starts", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/swept` });
    const tenant = { team_id: team.team.id, environment: "LIVE" as const };
    const members = [newId("delivery"), newId("delivery")].map((id) => ({ id, event: newId("event") }));
    const groupId = members[0]?.id ?? "";
    await transaction(team.em, async (tx) => {
      const db = kysely(tx);
      const made = sql<string>`now() - interval '1 minute'`;
      await db
        .insertInto("webhook_events")
        .values(
          members.map(({ event }) => ({
            id: event,
            ...tenant,
            type: "newsletter.started",
            object: '{"object":"newsletter"}',
            created_at: made,
            kept_until: sql<string>`now() + interval '31 days'`,
          })),
        )
        .execute();
      await db
        .insertInto("webhook_deliveries")
        .values(
          members.map(({ id, event }) => ({
            id,
            ...tenant,
            webhook_id: endpoint.id,
            event_id: event,
            event_type: "newsletter.started",
            group_id: groupId,
            created_at: made,
          })),
        )
        .execute();
      await db
        .insertInto("webhook_groups")
        .values({ id: groupId, ...tenant, webhook_id: endpoint.id, size: 2, created_at: made })
        .execute();
    });
    const log = await untilOver(team, endpoint.id, 2);
    assert.deepEqual(
      log.map(({ status, attempt, group_id }) => [status, attempt, group_id]),
      members.map(() => ["SUCCEEDED", 1, groupId]),
    );
    assert.equal(assertAllHeaders(receiver, "/swept", log, endpoint).length, 2);
  });
});
