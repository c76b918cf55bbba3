import assert from "node:assert/strict";
import { setImmediate as nextTurn } from "node:timers/promises";
import { sql } from "kysely";
import { SharedPlaces } from "../../activities/webhooks/shared-places.ts";
import { SuccessWriter } from "../../activities/webhooks/success-writer.ts";
import { kysely } from "../../db/orm.ts";
import { type AttemptOutcome, writeSuccesses } from "../../domain/webhooks/attempts.ts";
import { FAILING_AFTER } from "../../domain/webhooks/endpoint-health.ts";
import { eventually } from "../support/eventually.ts";
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

  async function healthOf(webhookId: string) {
    const db = kysely(team.em.fork());
    return db.selectFrom("webhook_health").selectAll().where("webhook_id", "=", webhookId).executeTakeFirstOrThrow();
  }

  const success = (id: string): AttemptOutcome => ({
    ...{ id, status: "SUCCEEDED", responseStatus: 204, responseBody: null, errorMessage: null, durationMs: 1 },
  });

  /** The status of a delivery, and how long ago its endpoint's latest success was, as it is noted; null for never. */
  async function read({ id, webhookId }: { id: string; webhookId: string }) {
    const { rows } = await sql<{ status: string; sinceSuccessMs: number | null }>`
      select d.status, (extract(epoch from clock_timestamp() - h.last_success_at) * 1000)::int as "sinceSuccessMs"
      from webhook_deliveries d join webhook_health h on h.webhook_id = ${webhookId} where d.id = ${id}`.execute(
      kysely(team.em),
    );
    return rows[0] ?? assert.fail("no delivery");
  }

  const ago = (time: string) => ({ last_success_at: sql`now() - ${time}::interval` });

  it("note its time, if none of the last second is noted", async () => {
    const before = await makeAttempted(ago("50 minutes"));
    const later = await makeAttempted(ago("-50 minutes"));
    const batches = [before, later].map(({ webhookId, id }) => ({ webhookId, outcomes: [success(id)] }));
    const written = await writeSuccesses(team.em.fork(), batches);
    assert.deepEqual([...written].toSorted(), [before.webhookId, later.webhookId].toSorted());
    const noted = await read(before);
    assert.equal(noted.status, "SUCCEEDED");
    assert.ok((noted.sinceSuccessMs ?? HOUR_MS) < HOUR_MS / 2, `${noted.sinceSuccessMs}`);
    const kept = await read(later);
    assert.equal(kept.status, "SUCCEEDED");
    assert.ok((kept.sinceSuccessMs ?? 0) < -HOUR_MS / 2, "a later time stays");
  });

  it("leave out those whose health must be written with them: after a failure, or an hour without a success", async () => {
    const steady = await makeAttempted(ago("2 seconds"));
    const others = [
      await makeAttempted({ ...ago("2 seconds"), consecutive_failures: 1 }),
      await makeAttempted({ ...ago("2 seconds"), consecutive_failures: FAILING_AFTER }),
      await makeAttempted(ago("61 minutes")),
      await makeAttempted({ last_success_at: null }),
    ];
    const before = await Promise.all(others.map(({ webhookId }) => healthOf(webhookId)));
    const batches = [...others, steady].map(({ webhookId, id }) => ({ webhookId, outcomes: [success(id)] }));
    assert.deepEqual([...(await writeSuccesses(team.em.fork(), batches))], [steady.webhookId]);
    for (const one of others) assert.equal((await read(one)).status, "PENDING");
    assert.deepEqual(await Promise.all(others.map(({ webhookId }) => healthOf(webhookId))), before);
  });

  it("may come in several batches of an endpoint, beside test deliveries, which do not count for it", async () => {
    const tested = await makeAttempted(ago("50 minutes"));
    const mixed = await makeAttempted(ago("50 minutes"));
    const { id: testId } = await insertDelivery(team, mixed.webhookId, { status: "PENDING" });
    const test = (id: string) => ({ ...success(id), isTest: true });
    const written = await writeSuccesses(team.em.fork(), [
      { webhookId: tested.webhookId, outcomes: [test(tested.id)] },
      { webhookId: mixed.webhookId, outcomes: [test(testId)] },
      { webhookId: mixed.webhookId, outcomes: [success(mixed.id)] },
    ]);
    assert.equal(written.size, 2);
    const [ofTest, ofBoth] = [await read(tested), await read(mixed)];
    assert.deepEqual([ofTest.status, ofBoth.status], ["SUCCEEDED", "SUCCEEDED"]);
    assert.equal((await read({ id: testId, webhookId: mixed.webhookId })).status, "SUCCEEDED");
    assert.ok((ofTest.sinceSuccessMs ?? 0) > HOUR_MS / 2);
    assert.ok((ofBoth.sinceSuccessMs ?? HOUR_MS) < HOUR_MS / 2);
  });

  it("do not wait for an endpoint whose health is being written", async () => {
    const [held, other] = [await makeAttempted(ago("50 minutes")), await makeAttempted(ago("50 minutes"))];
    await team.em.fork().transactional(async (tx) => {
      await sql`select from webhook_health where webhook_id = ${held.webhookId} for update`.execute(kysely(tx));
      const batches = [held, other].map(({ webhookId, id }) => ({ webhookId, outcomes: [success(id)] }));
      assert.equal((await writeSuccesses(team.em.fork(), batches)).size, 2);
    });
    const [ofHeld, ofOther] = [await read(held), await read(other)];
    assert.equal(ofHeld.status, "SUCCEEDED");
    assert.ok((ofHeld.sinceSuccessMs ?? 0) > HOUR_MS / 2);
    assert.ok((ofOther.sinceSuccessMs ?? HOUR_MS) < HOUR_MS / 2);
  });

  /** Six groups that have written once, and the transactions of what three of them write then: the first one some turns before. */
  async function writeAgain(expectedMs: number) {
    const writer = new SuccessWriter(team.em, new SharedPlaces(10), { expectedMs });
    const groups = await Promise.all(
      Array.from({ length: 6 }, async () => {
        const { webhookId, id } = await makeAttempted(ago("2 seconds"));
        const { id: later } = await insertDelivery(team, webhookId, { status: "PENDING" });
        const group = Symbol();
        const write = (deliveryId: string) =>
          writer.write(team.team.id, group, { webhookId, outcomes: [success(deliveryId)] });
        await write(id);
        return { write: () => write(later), later };
      }),
    );
    const readTransaction = async ({ later }: { later: string }) => {
      const { rows } = await sql<{ xmin: string }>`select xmin::text from webhook_deliveries
        where id = ${later} and status = 'SUCCEEDED'`.execute(kysely(team.em));
      return rows[0]?.xmin ?? assert.fail("it is not written");
    };
    const wroteAt = performance.now();
    await eventually(() => performance.now() - wroteAt > Math.min(expectedMs, 2), { what: "2 ms to pass" });
    const [first, ...others] = groups.slice(0, 3);
    const last = groups.at(-1);
    assert.ok(first && last);
    const written = first.write();
    // Without a wait its write begins by now.
    for (let turn = 0; turn < 3; turn++) await nextTurn();
    await Promise.all([written, ...others.map(({ write }) => write())]);
    return { transactions: await Promise.all([first, ...others].map(readTransaction)), last, readTransaction };
  }

  it("wait for those of half of the groups that wrote lately, or a moment, and share a statement", async () => {
    const { transactions, last, readTransaction } = await writeAgain(HOUR_MS);
    assert.equal(new Set(transactions).size, 1);
    assert.equal(await last.write(), true, "a lone write ends after the wait");
    assert.ok(await readTransaction(last));
  });

  it("do not wait for groups that have not written lately", async () => {
    const { transactions } = await writeAgain(1);
    const [first, ...others] = transactions;
    assert.ok(first !== undefined && !others.includes(first), transactions.join(", "));
  });
});
