import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { type AttemptOutcome, writeSuccesses } from "../../domain/webhooks/attempts.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import type { TestTeam } from "../support/factories.ts";
import { insertDelivery, makeEndpoint, makeTeam, PUBLIC_URL } from "../support/webhooks.ts";
import { setHealth } from "./observing.ts";

const HOUR_MS = 3_600_000;

describe("Successes of several endpoints, written in one statement", () => {
  let team: TestTeam;
  before(async () => {
    team = await makeTeam();
  });

  /** An endpoint with a delivery that a group attempts. */
  async function makeAttempted(health: Parameters<typeof setHealth>[2]) {
    const { id: webhookId } = await makeEndpoint(team, { url: PUBLIC_URL });
    await setHealth(team, webhookId, health);
    const { id } = await insertDelivery(team, webhookId, { status: "PENDING" });
    return { webhookId, id };
  }

  const success = (id: string): AttemptOutcome => ({
    ...{ id, status: "SUCCEEDED", responseStatus: 204, responseBody: null, errorMessage: null, durationMs: 1 },
  });

  /** The status of a delivery, and how long ago its endpoint's latest success is noted, in ms; null for never. */
  async function read({ id, webhookId }: { id: string; webhookId: string }) {
    const { rows } = await sql<{ status: string; agoMs: number | null }>`
      select d.status, (extract(epoch from clock_timestamp() - h.last_success_at) * 1000)::int as "agoMs"
      from webhook_deliveries d join webhook_health h on h.webhook_id = ${webhookId} where d.id = ${id}`.execute(
      kysely(team.em),
    );
    return rows[0] ?? assert.fail("no delivery");
  }

  it("note the time for those without failures, if none of the last second is noted", async () => {
    const [first, again, soon] = [
      await makeAttempted({ last_success_at: null }),
      await makeAttempted({ last_success_at: new Date(Date.now() - HOUR_MS) }),
      await makeAttempted({ last_success_at: sql`now() + interval '1 hour'` }),
    ];
    const all = [first, again, soon];
    const batches = all.map(({ webhookId, id }) => ({ webhookId, outcomes: [success(id)] }));
    const written = await writeSuccesses(team.em.fork(), batches);
    assert.deepEqual([...written].toSorted(), all.map(({ webhookId }) => webhookId).toSorted());
    for (const one of [first, again]) {
      const { status, agoMs } = await read(one);
      assert.equal(status, "SUCCEEDED");
      assert.ok(agoMs !== null && agoMs < HOUR_MS / 2, `${agoMs}`);
    }
    const { status, agoMs } = await read(soon);
    assert.equal(status, "SUCCEEDED");
    assert.ok(agoMs !== null && agoMs < 0, "the time that was noted is soon enough");
  });

  it("leave out those with failures, whose health must be written with them", async () => {
    const [failed, failing, working] = [
      await makeAttempted({ consecutive_failures: 1 }),
      await makeAttempted({ consecutive_failures: FAILING_AFTER }),
      await makeAttempted({ last_success_at: null }),
    ];
    const batches = [failed, failing, working].map(({ webhookId, id }) => ({ webhookId, outcomes: [success(id)] }));
    assert.deepEqual([...(await writeSuccesses(team.em.fork(), batches))], [working.webhookId]);
    for (const one of [failed, failing]) assert.deepEqual(await read(one), { status: "PENDING", agoMs: null });
  });

  it("do not count those of test deliveries for the endpoint", async () => {
    const tested = await makeAttempted({ last_success_at: null });
    const outcomes = [{ ...success(tested.id), isTest: true }];
    assert.equal((await writeSuccesses(team.em.fork(), [{ webhookId: tested.webhookId, outcomes }])).size, 1);
    assert.deepEqual(await read(tested), { status: "SUCCEEDED", agoMs: null });
  });

  it("do not wait for an endpoint whose health is being written", async () => {
    const [held, other] = [
      await makeAttempted({ last_success_at: null }),
      await makeAttempted({ last_success_at: null }),
    ];
    await team.em.fork().transactional(async (tx) => {
      await sql`select from webhook_health where webhook_id = ${held.webhookId} for update`.execute(kysely(tx));
      const batches = [held, other].map(({ webhookId, id }) => ({ webhookId, outcomes: [success(id)] }));
      assert.equal((await writeSuccesses(team.em.fork(), batches)).size, 2);
    });
    assert.deepEqual(await read(held), { status: "SUCCEEDED", agoMs: null });
    assert.notEqual((await read(other)).agoMs, null);
  });
});
