import assert from "node:assert/strict";
import type { Client } from "@temporalio/client";
import { kysely } from "../../db/orm.ts";
import type { Receiver } from "../support/receiver.ts";
import { together } from "../support/together.ts";
import { emitSome, logOf, makeEndpoint, makeTeam, type TestEndpoint } from "../support/webhooks.ts";
import {
  answerWith,
  askToWait,
  assertAllHeaders,
  eventIdOf,
  type Row,
  receivingBesideTemporal,
  setEndpoint,
  states,
  untilAtRest,
  untilOver,
  untilWaiting,
  workflowOf,
} from "./observing.ts";

const SWITCHED_OFF = { active: false, disabled_reason: "delivery_failures" };
const ON = { active: true, disabled_at: null, disabled_reason: null };

describe("An endpoint that changes while deliveries are retried", () => {
  const it = together();
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
    receiver.behaveAt(path, askToWait(600));
    await emitSome(team, 1);
    const [row] = await untilWaiting(team, endpoint.id);
    assert.ok(row);
    await untilAtRest(temporal, endpoint.id);
    receiver.behaveAt(path, answerWith(204));
    return { team, endpoint, path, row, retryNow: () => workflowOf(temporal, endpoint.id).executeUpdate("retryNow") };
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

  it("gets no further attempt when it is off, and its delivery is FAILED and says so", async () => {
    const { team, endpoint, path, row, retryNow } = await retrying("off");
    await setEndpoint(team, endpoint.id, SWITCHED_OFF);
    await retryNow();
    await workflowOf(temporal, endpoint.id).result();
    const [only, ...more] = await untilOver(team, endpoint.id);
    assert.deepEqual(more, []);
    assert.deepEqual([only?.id, only?.status, only?.next_attempt_at], [row.id, "FAILED", null]);
    assert.match(only?.error_message ?? "", /^Answered with 429\. The endpoint was switched off; replay/);
    assert.equal(countAt(path), 1);
  });

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
    const { team, endpoint, path, retryNow } = await retrying("deleted");
    const db = kysely(team.em);
    await db.deleteFrom("webhook_health").where("webhook_id", "=", endpoint.id).execute();
    await db.deleteFrom("webhook_endpoints").where("id", "=", endpoint.id).execute();
    await retryNow();
    await workflowOf(temporal, endpoint.id).result();
    assert.equal(countAt(path), 1);
    assert.equal((await logOf(team, endpoint.id)).length, 1);
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
