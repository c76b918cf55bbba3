import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { api } from "../support/api.ts";
import type { Receiver } from "../support/receiver.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import {
  askToWait,
  assertAllHeaders,
  eventIdOf,
  groupsOf,
  type Row,
  receivingBesideTemporal,
  setEndpoint,
  states,
  untilAtRest,
  untilLog,
  untilOver,
  untilWaiting,
  workflowOf,
} from "./observing.ts";

const STOPPED = { active: false, disabled_reason: "manual" };
const SWITCHED_OFF = { active: false, disabled_reason: "delivery_failures" };
const ON = { active: true, disabled_at: null, disabled_reason: null };

describe("An endpoint that changes while deliveries are retried", () => {
  let receiver: Receiver;
  let temporal: Client;
  receivingBesideTemporal((...opened) => {
    [receiver, temporal] = opened;
  });

  type Team = Awaited<ReturnType<typeof makeTeam>>;
  interface Retrying {
    team: Team;
    endpoint: TestEndpoint;
    path: string;
    row: Row;
    retryNow(): Promise<unknown>;
  }

  /** A delivery that failed once and waits for ten minutes. */
  async function retrying(name: string): Promise<Retrying> {
    const team = await makeTeam();
    const path = `/${name}`;
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}${path}` });
    receiver.behave = askToWait(600);
    await emitSome(team, 1);
    const row = await untilAtRest(temporal, (await untilWaiting(team, endpoint.id))[0]);
    receiver.behave = (_, response) => void response.writeHead(204).end();
    return { team, endpoint, path, row, retryNow: () => workflowOf(temporal, row).executeUpdate("retryNow") };
  }
  const countAt = (path: string) => receiver.received.filter((one) => one.path === path).length;

  it("gets the next attempt at its new URL, with the event it was of", async () => {
    const { team, endpoint, path, retryNow } = await retrying("moved");
    await setEndpoint(team, endpoint.id, { url: `${receiver.origin}/moved/on` });
    await retryNow();
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "SUCCEEDED"],
    ]);
    assert.equal(countAt(path), 1);
    const [second] = assertAllHeaders(receiver, "/moved/on", log, endpoint);
    assert.ok(second);
    assert.equal(eventIdOf(second), log[0]?.event_id);
  });

  for (const [how, set] of [
    ["stopped by hand", STOPPED],
    ["switched off", SWITCHED_OFF],
  ] as const) {
    it(`gets no further attempt when it is ${how}, and its delivery is FAILED and says so`, async () => {
      const { team, endpoint, path, row, retryNow } = await retrying(how.replaceAll(" ", "-"));
      await setEndpoint(team, endpoint.id, set);
      await retryNow();
      assert.deepEqual(await workflowOf(temporal, row).result(), { succeeded: 0, failed: 1, blocked: 0 });
      const [only, ...more] = await logOf(team, endpoint.id);
      assert.deepEqual(more, []);
      assert.deepEqual([only?.id, only?.status, only?.next_attempt_at], [row.id, "FAILED", null]);
      assert.match(only?.error_message ?? "", /^Answered with 429\. The endpoint was switched off; replay/);
      assert.equal(countAt(path), 1);
      assert.deepEqual(await groupsOf(team, endpoint.id), []);
    });
  }

  it("gets the next attempt when it was off for a while and is on again by then", async () => {
    const { team, endpoint, retryNow } = await retrying("off-and-on");
    await setEndpoint(team, endpoint.id, SWITCHED_OFF);
    await setEndpoint(team, endpoint.id, ON);
    await retryNow();
    assert.deepEqual(states(await untilOver(team, endpoint.id)), [
      [1, "FAILED"],
      [2, "SUCCEEDED"],
    ]);
  });

  it("gets nothing more once it is deleted, and the workflow ends", async () => {
    const { team, endpoint, path, row, retryNow } = await retrying("deleted");
    const db = kysely(team.em);
    await db.deleteFrom("webhook_health").where("webhook_id", "=", endpoint.id).execute();
    await db.deleteFrom("webhook_endpoints").where("id", "=", endpoint.id).execute();
    await retryNow();
    await workflowOf(temporal, row).result();
    assert.deepEqual(await groupsOf(team, endpoint.id), []);
    assert.equal(countAt(path), 1);
    assert.equal((await logOf(team, endpoint.id)).length, 1);
  });

  it("that is deleted in the middle of a group gets only the first requests of that group", async () => {
    const team = await makeTeam();
    const path = "/deleted/busy";
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}${path}` });
    const first = Promise.withResolvers<void>();
    const deleted = Promise.withResolvers<void>();
    // All that is in flight is answered together, once the endpoint is gone.
    receiver.behave = (_, response) => {
      first.resolve();
      void deleted.promise.then(() => response.writeHead(204).end());
    };
    await emitSome(team, 100);
    await first.promise;
    const [row = assert.fail("it is in no group")] = await logOf(team, endpoint.id);
    assert.equal((await api(team.keys.live).delete(`/webhooks/${endpoint.id}`)).status, 200);
    deleted.resolve();
    await workflowOf(temporal, row).result();
    assert.ok(countAt(path) <= 48, `${countAt(path)} came`);
  });

  it("has deliveries that waited for a first attempt BLOCKED when it goes off, and none of them sent", async () => {
    const team = await makeTeam();
    const endpoint = await makeEndpoint(team, { url: `${receiver.origin}/waiting` });
    // As many groups as may be at their first attempt.
    const db = kysely(team.em);
    const busy = [1, 2, 3, 4].map(() => newId("delivery"));
    await db
      .insertInto("webhook_groups")
      .values(
        busy.map((id) => ({
          id,
          team_id: team.team.id,
          environment: "LIVE" as const,
          webhook_id: endpoint.id,
          size: 1,
          begun_at: sql<string>`now()`,
          due_at: sql<string>`now() + interval '1 hour'`,
        })),
      )
      .execute();
    await emitSome(team, 3);
    const waiting = await untilLog(team, endpoint.id, (log) => log.length === 3);
    assert.ok(waiting.every(({ group_id, status }) => group_id === null && status === "PENDING"));
    await setEndpoint(team, endpoint.id, SWITCHED_OFF);
    await db.deleteFrom("webhook_groups").where("id", "in", busy).execute();
    const log = await untilOver(team, endpoint.id, 3);
    for (const row of log) {
      assert.deepEqual([row.attempt, row.status, row.response_status], [1, "BLOCKED", null]);
      assert.match(row.error_message ?? "", /switched off; replay/);
    }
    assert.equal(countAt("/waiting"), 0);
  });

  it("is not sent anything when its name turns private: that is BLOCKED, tried no more", async () => {
    const { team, endpoint, path, retryNow } = await retrying("turned");
    await setEndpoint(team, endpoint.id, { url: "http://127.0.0.1:9/private" });
    await retryNow();
    const log = await untilOver(team, endpoint.id);
    assert.deepEqual(states(log), [
      [1, "FAILED"],
      [2, "BLOCKED"],
    ]);
    assert.equal(log.at(-1)?.response_status, null);
    assert.ok(log.at(-1)?.error_message);
    assert.equal(countAt(path), 1);
  });
});
