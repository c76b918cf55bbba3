import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { kysely } from "../../db/orm.ts";
import { deliveryWorkflowId } from "../../workflows/ids.ts";
import { eventually } from "../support/eventually.ts";
import { openReceiver, type Receiver } from "../support/receiver.ts";
import { temporalClient } from "../support/temporal.ts";
import { emitSome, logOf, makeEndpoint, makeTeam } from "../support/webhooks.ts";
import {
  askToWait,
  assertAllHeaders,
  assertEachSucceeded,
  eventIdOf,
  groupsOf,
  setEndpoint,
  untilLog,
  untilOver,
  untilWaiting,
  workflowOf,
} from "./observing.ts";

/** Failures in a row with which an endpoint is `failing`. */
const FAILING = 5;

describe("A working endpoint", () => {
  let receiver: Receiver;
  let dead: Receiver;
  let temporal: Client;
  let close: () => Promise<void>;
  before(async () => {
    receiver = await openReceiver();
    dead = await openReceiver();
    ({ client: temporal, close } = await temporalClient());
  });
  after(async () => {
    await receiver.close();
    await dead.close().catch(() => {});
    await close();
  });

  const untilArrived = (path: string, events: number) =>
    eventually(() => new Set(receiver.received.filter((one) => one.path === path).map(eventIdOf)).size === events, {
      what: `${events} events at ${path}`,
    });

  it("is not delayed by an unproven endpoint, which gets one group whose first attempt is an activity", async () => {
    receiver.behave = ({ path }, response) => {
      if (path === "/known") response.writeHead(204).end();
    };
    const team = await makeTeam();
    const unproven = await makeEndpoint(team, { url: `${receiver.origin}/unproven` });
    await emitSome(team, 350);
    await eventually(async () => {
      const [group] = await groupsOf(team, unproven.id);
      const { events } = await temporal.workflow.getHandle(deliveryWorkflowId(group?.id ?? "")).fetchHistory();
      return events?.some(({ activityTaskScheduledEventAttributes: scheduled }) => scheduled);
    });
    const first = (await groupsOf(team, unproven.id)).filter(({ phase }) => phase === "FIRST");
    assert.equal(first.length, 1);
    await kysely(team.em).deleteFrom("webhook_endpoints").where("id", "=", unproven.id).execute();
  });

  it("gets all of its events while another one hangs, one refuses and hundreds of their deliveries wait", async () => {
    receiver.behave = ({ path }, response) => {
      if (path === "/working") response.writeHead(204).end();
    };
    const refusing = dead.origin;
    await dead.close();
    const team = await makeTeam();
    const hanging = await makeEndpoint(team, { url: `${receiver.origin}/hangs` });
    const refused = await makeEndpoint(team, { url: `${refusing}/refuses` });
    // By now it is known that they fail.
    await emitSome(team, FAILING);
    for (const { id } of [hanging, refused]) {
      await untilLog(team, id, (log) => log.filter(({ status }) => status !== "PENDING").length >= FAILING);
    }
    const working = await makeEndpoint(team, { url: `${receiver.origin}/working` });
    const count = 400;
    await emitSome(team, count);
    await untilArrived("/working", count);
    const [hangingLog, refusedLog] = [await logOf(team, hanging.id), await logOf(team, refused.id)];
    const waiting = hangingLog.filter(({ status, attempt }) => status === "PENDING" && attempt === 1).length;
    assert.ok(waiting >= 200, `${waiting} of the hanging one's wait`);
    assert.equal(
      refusedLog.some(({ status }) => status === "SUCCEEDED"),
      false,
    );
    const log = await untilOver(team, working.id, count);
    assertEachSucceeded(log, count);
    assertAllHeaders(receiver, "/working", log, working);
    const first = (await groupsOf(team, hanging.id)).filter(({ phase }) => phase === "FIRST");
    assert.ok(
      first.length <= 1 || (await logOf(team, hanging.id)).length === 0,
      "one group at a time is at its first attempt",
    );
    for (const { id } of [hanging, refused]) await setEndpoint(team, id, { active: false, disabled_reason: "manual" });
    receiver.behave = (_, response) => void response.writeHead(204).end();
  });

  it("gets all of its events while a dozen others hang, of its own team and of others", async () => {
    receiver.behave = ({ path }, response) => {
      if (path === "/fine") response.writeHead(204).end();
    };
    const teams = await Promise.all(Array.from({ length: 4 }, () => makeTeam()));
    const hanging = await Promise.all(
      teams.flatMap((team) =>
        [1, 2, 3].map(async (n) => ({
          team,
          id: (await makeEndpoint(team, { url: `${receiver.origin}/hang/${n}` })).id,
        })),
      ),
    );
    for (const team of teams) await emitSome(team, 30);
    for (const { team, id } of hanging) await untilLog(team, id, (log) => log.length >= 30);
    const [team] = teams;
    assert.ok(team);
    const working = await makeEndpoint(team, { url: `${receiver.origin}/fine` });
    await emitSome(team, 200);
    await untilArrived("/fine", 200);
    const unfinished = await Promise.all(
      hanging.map(async ({ team, id }) =>
        (await logOf(team, id)).some(({ status }) => status === "PENDING" || status === "RETRYING"),
      ),
    );
    assert.ok(unfinished.some(Boolean), "the others are still at it");
    const log = await untilOver(team, working.id, 200);
    assertEachSucceeded(log, 200);
    for (const { team, id } of hanging) await setEndpoint(team, id, { active: false, disabled_reason: "manual" });
    receiver.behave = (_, response) => void response.writeHead(204).end();
  });

  it("gets new events at once while many of its older ones wait for a retry", async () => {
    receiver.behave = askToWait(600);
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/recovered` });
    // With one failure more it would be failing, and all of its deliveries would wait for a probe.
    for (const group of [1, 2, 3, 4]) {
      await emitSome(team, 1);
      await untilLog(
        team,
        endpoint.id,
        (log) => log.length === group && log.every(({ status }) => status === "RETRYING"),
      );
    }
    receiver.behave = (_, response) => void response.writeHead(204).end();
    await emitSome(team, 3);
    const log = await untilLog(
      team,
      endpoint.id,
      (rows) => rows.filter(({ status }) => status === "SUCCEEDED").length === 3,
    );
    assert.equal(log.filter(({ status }) => status === "RETRYING").length, 4);
    const groups = new Set(
      (await untilWaiting(team, endpoint.id)).flatMap(({ group_id, status }) =>
        status === "RETRYING" ? [group_id] : [],
      ),
    );
    for (const group_id of groups) await workflowOf(temporal, { group_id }).executeUpdate("cancel");
    await untilOver(team, endpoint.id, 7);
  });
});
