import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { deliveryCommands } from "../../app/commands/deliveries.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { app, inProcess } from "../support/command.ts";
import { eventually } from "../support/eventually.ts";
import type { Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import {
  askToWait,
  assertAllHeaders,
  groupsOf,
  type Row,
  receivingBesideTemporal,
  setHealth,
  states,
  untilAtRest,
  untilDetails,
  untilLog,
  untilOver,
  workflowOf,
} from "./observing.ts";

describe("An operator of deliveries", () => {
  let receiver: Receiver;
  let temporal: Client;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });

  type Team = Awaited<ReturnType<typeof makeTeam>>;

  /** Deliveries of one workflow that failed once and wait for ten minutes. */
  async function waiting(
    name: string,
    count = 1,
  ): Promise<{ team: Team; endpoint: TestEndpoint; rows: Row[]; row: Row }> {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/${name}` });
    receiver.behave = askToWait(600);
    await emitSome(team, count);
    const failed = await untilLog(
      team,
      endpoint.id,
      (log) => log.length === count && log.every(({ status }) => status === "RETRYING"),
    );
    await untilAtRest(temporal, failed[0]);
    // Failures that were written one after the other get one time for their next attempt when the attempt ends.
    const rows = await logOf(team, endpoint.id);
    const [row] = rows;
    assert.ok(row);
    assert.equal(new Set(rows.map(({ group_id }) => group_id)).size, 1, "one workflow carries them");
    receiver.behave = (_, response) => void response.writeHead(204).end();
    return { team, endpoint, rows, row };
  }

  it("reads in the UI which endpoint, how many are left, when the next attempt is and why the last failed", async () => {
    const { team, endpoint, rows, row } = await waiting("details", 3);
    const handle = workflowOf(temporal, row);
    const details = await untilDetails(handle, /left/);
    const nextAt = new Date(row.next_attempt_at ?? 0).toISOString();
    assert.equal(
      details,
      `Endpoint ${endpoint.id}. 3 left. Attempt 1 of 4 failed: http_429. Next attempt at ${nextAt}. Updates: retryNow, cancel.`,
    );
    assert.equal(new Set(rows.map(({ next_attempt_at }) => String(next_attempt_at))).size, 1);
    const { searchAttributes, staticSummary } = await handle.describe();
    assert.deepEqual(searchAttributes["TeamId"], [team.team.id]);
    assert.deepEqual(searchAttributes["WebhookId"], [endpoint.id]);
    assert.equal(await staticSummary(), `3 deliveries to ${endpoint.id}`);
    await handle.executeUpdate("retryNow");
    await untilOver(team, endpoint.id, 3);
    assert.match(await untilDetails(handle, /Ended/), /Ended: 3 succeeded, 0 failed, 0 blocked\.$/);
    assert.deepEqual(await handle.result(), { succeeded: 3, failed: 0, blocked: 0 });
  });

  it("has the remaining deliveries attempted now with retryNow, which uses up no attempt of the ladder", async () => {
    const { team, endpoint, row } = await waiting("retry-now");
    receiver.behave = (_, response) => void response.writeHead(500).end();
    await workflowOf(temporal, row).executeUpdate("retryNow");
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(
      states(log),
      [1, 2, 3, 4, 5].map((attempt) => [attempt, "FAILED"]),
    );
    assert.equal(assertAllHeaders(receiver, "/retry-now", log, endpoint).length, 5);
  });

  // Kept until after the attempt, each update cost the wait that followed: all attempts were made at once.
  it("changes nothing with retryNow while an attempt is under way", async () => {
    const { team, endpoint, row } = await waiting("impatient");
    const handle = workflowOf(temporal, row);
    const answers: string[] = [];
    receiver.behave = async (received, response, request) => {
      answers.push(await handle.executeUpdate<string, []>("retryNow"));
      askToWait(600)(received, response, request);
    };
    await handle.executeUpdate("retryNow");
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.length >= 2 && rows.at(-1)?.status === "RETRYING" && rows.at(-1)?.response_status === 429,
    );
    await untilDetails(handle, /Attempt 2 of 5 failed: http_429/);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "RETRYING"],
    ]);
    assert.deepEqual(answers, ["an attempt is under way"]);
    await handle.executeUpdate("cancel");
  });

  it("gives up the remaining deliveries with cancel: FAILED, with the reason", async () => {
    const { team, endpoint, rows, row } = await waiting("cancel", 2);
    const handle = workflowOf(temporal, row);
    assert.equal(await handle.executeUpdate("cancel"), "2 given up");
    assert.deepEqual(await handle.result(), { succeeded: 0, failed: 2, blocked: 0 });
    const log = await untilOver(team, endpoint.id, 2);
    assert.deepEqual(new Set(log.map(({ id }) => id)), new Set(rows.map(({ id }) => id)));
    for (const given of log) {
      assert.deepEqual([given.status, given.next_attempt_at, given.response_status], ["FAILED", null, 429]);
      assert.match(given.error_message ?? "", /^Answered with 429\. An operator gave it up; it can be replayed\.$/);
    }
    assert.deepEqual(await groupsOf(team, endpoint.id), []);
    assert.equal(receiver.received.filter(({ path }) => path === "/cancel").length, 2);
  });

  it("gives up after the attempt under way, whose successes count, with cancel", async () => {
    const { team, endpoint, row } = await waiting("late-cancel", 2);
    const handle = workflowOf(temporal, row);
    let cancelled: Promise<unknown> | undefined;
    let first = true;
    receiver.behave = async (received, response, request) => {
      cancelled ??= handle.executeUpdate("cancel");
      // It was accepted: an update that has not ended yet has no answer.
      await eventually(async () => (await acceptedUpdates(handle)).includes("cancel"), { what: "the update" });
      if (first) response.writeHead(204).end();
      else askToWait(600)(received, response, request);
      first = false;
    };
    await handle.executeUpdate("retryNow");
    await receiver.until("/late-cancel", 4);
    assert.equal(await cancelled, "1 given up");
    assert.deepEqual(await handle.result(), { succeeded: 1, failed: 1, blocked: 0 });
    const log = await untilOver(team, endpoint.id, 2);
    assert.deepEqual(
      log
        .filter(({ attempt }) => attempt === 2)
        .map(({ status }) => status)
        .sort(),
      ["FAILED", "SUCCEEDED"],
    );
  });

  it("learns from cancel how many deliveries the attempt under way returned to Postgres", async () => {
    const { team, endpoint, row } = await waiting("returned-cancel");
    const handle = workflowOf(temporal, row);
    await setHealth(team, endpoint.id, { consecutive_failures: FAILING_AFTER - 1 });
    let cancelled: Promise<unknown> | undefined;
    receiver.behave = async (received, response, request) => {
      cancelled ??= handle.executeUpdate("cancel");
      await eventually(async () => (await acceptedUpdates(handle)).includes("cancel"), { what: "the update" });
      askToWait(600)(received, response, request);
    };
    await handle.executeUpdate("retryNow");
    assert.equal((await handle.result()).returned, 1);
    assert.equal(
      await cancelled,
      "nothing to cancel: 1 returned, which wait for their endpoint; webhook:give-up ends them",
    );
    const given = await app("webhook:give-up", endpoint.id, "--json");
    assert.equal(given.json.given_up, 1, given.stderr);
  });

  async function acceptedUpdates(handle: ReturnType<typeof workflowOf>): Promise<string[]> {
    const { events } = await handle.fetchHistory();
    return (events ?? []).flatMap(
      ({ workflowExecutionUpdateAcceptedEventAttributes: accepted }) => accepted?.acceptedRequest?.input?.name ?? [],
    );
  }

  it("gives up the remaining deliveries with a cancel in the UI, too", async () => {
    const { team, endpoint, row } = await waiting("ui-cancel");
    const handle = workflowOf(temporal, row);
    await handle.cancel();
    assert.deepEqual(await handle.result(), { succeeded: 0, failed: 1, blocked: 0 });
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [[1, "FAILED"]]);
    assert.match(log[0]?.error_message ?? "", /An operator gave it up/);
    assert.deepEqual(await groupsOf(team, endpoint.id), []);
  });

  it("finds the workflow that carries a delivery by delivery:where, its attempts by delivery:show, and attempts it by delivery:retry", async () => {
    const { team, endpoint, rows, row } = await waiting("where", 2);
    const [leader, member] = rows;
    const where = (id: string | undefined, ...args: string[]) => app("delivery:where", String(id), ...args);
    const [text, unknown, ...found] = await Promise.all([
      where(row.id),
      where("del_00000000000000000000000000"),
      where(leader?.id, "--json"),
      where(member?.id, "--json"),
    ]);
    for (const { code, json, stderr } of found) {
      assert.equal(code, 0, stderr);
      assert.equal(json.workflow, `webhook-delivery/${row.group_id}`);
      assert.deepEqual([json.status, json.attempt, json.webhook], ["RETRYING", 1, endpoint.id]);
      assert.equal(json.next_attempt_at, new Date(row.next_attempt_at ?? 0).toISOString());
      assert.equal((await temporal.workflow.getHandle(json.workflow).describe()).status.name, "RUNNING");
    }
    assert.match(text.stdout, new RegExp(`^webhook-delivery/${row.group_id}\nRETRYING, attempt 1, next at 20`));
    assert.notEqual(unknown.code, 0);
    assert.match(unknown.stderr + unknown.stdout, /There is no delivery/);

    const shown = await inProcess(deliveryCommands, "delivery:show", row.id);
    assert.match(shown.text, /newsletter\.started evt_\w+ to whk_\w+/);
    assert.match(shown.text, new RegExp(`attempt 1  ${row.id}  RETRYING  HTTP 429`));
    assert.deepEqual(shown.data["attempts"], [
      {
        ...{ id: row.id, attempt: 1, status: "RETRYING", response_status: 429, duration_ms: row.duration_ms },
        ...{ error: row.error_message, at: new Date(row.updated_at).toISOString() },
      },
    ]);

    const handle = workflowOf(temporal, row);
    const retried = await inProcess(deliveryCommands, "delivery:retry", "--webhook", endpoint.id);
    assert.deepEqual(retried.data, { webhook: endpoint.id, workflows: 1, probed: false });
    await handle.result();
    await assert.rejects(inProcess(deliveryCommands, "delivery:retry", row.id), /No workflow carries dlv_/);
    await assert.rejects(
      inProcess(deliveryCommands, "delivery:retry"),
      /Name either deliveries or, with --webhook, their endpoint\.$/,
    );
    await assert.rejects(
      inProcess(deliveryCommands, "delivery:retry", "--webhook", "whk_none"),
      /There is no webhook endpoint whk_none: see webhook:list\./,
    );
    const [done] = (await logOf(team, endpoint.id)).filter(({ status }) => status === "SUCCEEDED");
    const over = await where(done?.id, "--json");
    assert.deepEqual([over.json.status, over.json.workflow], ["SUCCEEDED", `webhook-delivery/${row.group_id}`]);
  });

  it("finds that a delivery which was BLOCKED at once has no workflow, and one that a workflow BLOCKED has", async () => {
    const team = await makeTeam();
    const off = await makeEndpoint(team, {
      url: `${receiver.origin}/off`,
      set: { active: false, disabled_reason: "delivery_failures" },
    });
    const inside = await makeEndpoint(team, { url: "http://127.0.0.1:9/" });
    await emitSome(team, 1);
    const [never] = await untilOver(team, off.id);
    const [tried] = await untilOver(team, inside.id);
    assert.deepEqual([never?.status, tried?.status], ["BLOCKED", "BLOCKED"]);
    const found = await Promise.all([never, tried].map((row) => app("delivery:where", row?.id ?? "", "--json")));
    assert.deepEqual(
      found.map(({ json }) => json.workflow),
      [null, `webhook-delivery/${tried?.id}`],
    );
    await untilDetails(workflowOf(temporal, tried ?? { group_id: null }), /0 succeeded, 0 failed, 1 blocked/);
  });
});
