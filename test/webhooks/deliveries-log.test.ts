import assert from "node:assert/strict";
import { sql } from "kysely";
import { DELIVERY_STATUSES, type DeliveryStatus, isFailure } from "../../db/entities/webhook.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { replayDelivery } from "../../domain/webhooks/replay-delivery.ts";
import { DELIVERIES } from "../../domain/webhooks/retention.ts";
import { type ApiAnswer, type ApiClient, api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { prune } from "../support/retention.ts";
import { insertAppEndpoint, insertDelivery, QUIET_EVENT } from "../support/webhooks.ts";

const DAY_MS = 86_400_000;
const daysAgo = (days: number) => new Date(Date.now() - days * DAY_MS);
/** Nobody may be called there: a delivery that a relay takes up is blocked. */
const BLOCKED_URL = "http://127.0.0.1:9/hooks";

describe("The delivery log", () => {
  let team: TestTeam;
  let client: ApiClient;
  let webhookId: string;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
    webhookId = await insertAppEndpoint(team, { url: BLOCKED_URL });
  });

  const db = () => kysely(team.em.fork());
  const page = (query: Record<string, string | number> = {}) =>
    client.get(`/webhooks/${webhookId}/deliveries`, { query });
  const idsOf = ({ body }: ApiAnswer): string[] => body.data.map(({ id }: Json) => id);
  const assertRefused = ({ status, body, text }: ApiAnswer, expected: number, code: string) => {
    assert.equal(status, expected, text);
    assert.equal(body.error.code, code, text);
  };

  it("comes in pages of at most 2 MiB, whatever endpoints answered", async () => {
    const ids: string[] = [];
    // As JSON each takes six times the bytes that are kept.
    const response_body = "\u0001".repeat(16 * 1024);
    for (let i = 0; i < 40; i++) {
      const created_at = new Date(Date.UTC(2026, 0, 1, 0, 0, i));
      ids.push((await insertDelivery(team, webhookId, { response_body, created_at })).id);
    }
    const seen: string[] = [];
    for (let cursor: string | null = ""; cursor !== null; ) {
      const answer: ApiAnswer = await page({ limit: 100, ...(cursor === "" ? {} : { cursor }) });
      assert.ok(Buffer.byteLength(answer.text) <= 2 * 1024 * 1024);
      seen.push(...idsOf(answer));
      cursor = answer.body.meta.next_cursor;
      assert.equal(answer.body.meta.has_more, cursor !== null);
    }
    assert.deepEqual(seen, ids.toReversed());
  });

  it("shows all of a delivery but its payload", async () => {
    const at = new Date("2026-08-15T10:00:00.250Z");
    const facts = {
      ...{
        attempt: 3,
        status: "RETRYING" as const,
        response_status: 503,
        response_body: "busy\n",
        error_message: "answered 503",
      },
      ...{ duration_ms: 1_234, is_replay: true, replay_of_id: "dlv_other" },
    };
    const { id, event_id } = await insertDelivery(team, webhookId, {
      ...facts,
      next_attempt_at: at,
      created_at: at,
      updated_at: at,
    });
    const { status, body } = await page();
    assert.equal(status, 200);
    const instant = at.toISOString();
    assert.deepEqual(body.data, [
      {
        ...{ object: "webhook_delivery", id, webhook_id: webhookId, event_id, event_type: QUIET_EVENT, ...facts },
        ...{ is_final: false, superseded_by_id: null },
        ...{ next_attempt_at: instant, created_at: instant, updated_at: instant },
      },
    ]);
  });

  it("is filtered by status, one of five, and indexed by those of attempts that did not succeed", async () => {
    const made: Record<string, string> = {};
    for (const status of DELIVERY_STATUSES) {
      const next_attempt_at = status === "PENDING" ? new Date(Date.now() + 3_600_000) : null;
      const { id, failure } = await insertDelivery(team, webhookId, { status, next_attempt_at });
      assert.equal(failure, isFailure(status) ? status : null);
      made[status] = id;
    }
    assert.equal(DELIVERY_STATUSES.length, 5);
    for (const [status, id] of Object.entries(made)) assert.deepEqual(idsOf(await page({ status })), [id]);
    assertRefused(await page({ status: "LOST" }), 400, "validation_failed");
  });

  it("tells the attempts with which deliveries ended from those that another one followed", async () => {
    const add = async (status: DeliveryStatus, superseded_by_id: string | null = null) =>
      (await insertDelivery(team, webhookId, { status, superseded_by_id })).id;
    const ended = [await add("SUCCEEDED"), await add("FAILED"), await add("BLOCKED")];
    const [succeeded, failed, blocked] = ended;
    const madeGood = await add("FAILED", succeeded);
    const others = [madeGood, await add("BLOCKED", failed), await add("RETRYING"), await add("PENDING")];
    for (const [query, expected] of [
      [{ final: "true" }, ended],
      [{ final: "false" }, others],
      [{ status: "FAILED", final: "true" }, [failed]],
      [{ status: "FAILED", final: "false" }, [madeGood]],
      [{ status: "BLOCKED", final: "true" }, [blocked]],
      [{ status: "SUCCEEDED", final: "true" }, [succeeded]],
      [{ status: "SUCCEEDED", final: "false" }, []],
      [{ status: "RETRYING", final: "true" }, []],
    ] as const) {
      const answer = await page(query);
      assert.deepEqual(idsOf(answer), expected.toReversed(), JSON.stringify(query));
      for (const row of answer.body.data) assert.equal(row.is_final, ended.includes(row.id));
    }
    assert.equal((await page({ final: "false" })).body.data.at(-1).superseded_by_id, succeeded);
    assertRefused(await page({ final: "yes" }), 400, "validation_failed");
  });

  it("shows one attempt as its page does, under its own endpoint only, until that is deleted", async () => {
    const { id } = await insertDelivery(team, webhookId, { error_message: "Answered with 500.", status: "FAILED" });
    await insertDelivery(team, webhookId);
    const { body: page } = await client.get(`/webhooks/${webhookId}/deliveries`, { query: { status: "FAILED" } });
    const { status, body } = await client.get(`/webhooks/${webhookId}/deliveries/${id}`);
    assert.equal(status, 200);
    assert.deepEqual([body.data], page.data);
    const elsewhere = await insertAppEndpoint(team);
    assertRefused(await client.get(`/webhooks/${elsewhere}/deliveries/${id}`), 404, "not_found");
    await sql`delete from webhook_endpoints where id = ${webhookId}`.execute(db());
    assertRefused(await client.get(`/webhooks/${webhookId}/deliveries/${id}`), 404, "not_found");
  });

  describe("replaying a delivery", () => {
    const replay = (deliveryId: string, options: Parameters<ApiClient["post"]>[2] = {}, body?: Json) =>
      client.post(`/webhooks/${webhookId}/deliveries/${deliveryId}/replay`, body, {
        idempotencyKey: unique("key"),
        ...options,
      });
    const count = async () => (await page({ limit: 100 })).body.data.length;

    it("queues its event as a new delivery; the log shows both", async () => {
      const original = await insertDelivery(team, webhookId, { status: "FAILED", attempt: 8, response_status: 500 });
      const { status, body } = await replay(original.id);
      assert.equal(status, 202);
      assert.equal(body.meta.dry_run, false);
      const { id, created_at, updated_at, ...rest } = body.data;
      assert.match(id, /^dlv_/);
      assert.equal(updated_at, created_at);
      assert.deepEqual(rest, {
        ...{ object: "webhook_delivery", webhook_id: webhookId, event_id: original.event_id, event_type: QUIET_EVENT },
        ...{ attempt: 1, status: "PENDING", is_replay: true, replay_of_id: original.id, next_attempt_at: null },
        ...{ is_final: false, superseded_by_id: null },
        ...{ response_status: null, response_body: null, error_message: null, duration_ms: null },
      });
      const log = (await page()).body.data;
      assert.ok(log.some((row: Json) => row.id === id));
      const again = (await replay(id)).body.data;
      assert.deepEqual([again.replay_of_id, again.event_id], [id, original.event_id], "it can be replayed too");
      const { status: before, attempt, ...replayed } = log.find((row: Json) => row.id === original.id);
      assert.deepEqual([before, attempt], ["FAILED", 8]);
      assert.deepEqual([replayed.is_final, replayed.superseded_by_id], [false, id]);
    });

    it("leaves it to the relay, and keeps the event until it can be replayed no more", async () => {
      const original = await insertDelivery(team, webhookId, { created_at: daysAgo(29) });
      const event = () =>
        db().selectFrom("webhook_events").selectAll().where("id", "=", original.event_id).executeTakeFirstOrThrow();
      await db()
        .updateTable("webhook_events")
        .set({ kept_until: daysAgo(-2) })
        .where("id", "=", original.event_id)
        .execute();
      const tenant = { teamId: team.team.id, environment: "LIVE" } as const;
      const queued = await transaction(team.em, (em) => replayDelivery(em, tenant, webhookId, original.id));
      assert.ok(queued.next_attempt_at, "it is due");
      assert.ok(new Date((await event()).kept_until) >= daysAgo(-30.9));

      await db()
        .updateTable("webhook_events")
        .set({ kept_until: daysAgo(-60) })
        .where("id", "=", original.event_id)
        .execute();
      await replay(original.id);
      assert.ok(new Date((await event()).kept_until) > daysAgo(-59), "never shortened");
    });

    it("is refused while the endpoint is off, and done once it is on", async () => {
      const { id } = await insertDelivery(team, webhookId, { status: "BLOCKED" });
      for (const reason of ["manual", "delivery_failures"] as const) {
        await db()
          .updateTable("webhook_endpoints")
          .set({ active: false, disabled_at: new Date(), disabled_reason: reason })
          .where("id", "=", webhookId)
          .execute();
        assertRefused(await replay(id), 409, "resource_state_invalid");
        assertRefused(await replay(id, { query: { dry_run: "true" } }), 409, "resource_state_invalid");
      }
      assert.equal(await count(), 1);
      await client.patch(`/webhooks/${webhookId}`, { active: true });
      assert.equal((await replay(id)).status, 202);
    });

    it("is refused once its payload is deleted", async () => {
      const { id, event_id } = await insertDelivery(team, webhookId);
      await db().deleteFrom("webhook_events").where("id", "=", event_id).execute();
      const answer = await replay(id);
      assertRefused(answer, 409, "resource_state_invalid");
      assert.match(answer.body.error.message, /no longer kept/);
    });

    /* A deletion that began first wins; one that comes second takes the new row along: nothing is left behind. */
    it("leaves nothing behind when the endpoint is deleted at the same time", async () => {
      for (let round = 0; round < 5; round++) {
        const id = await insertAppEndpoint(team, { url: BLOCKED_URL });
        const delivery = await insertDelivery(team, id);
        const [replayed, deleted] = await Promise.all([
          client.post(`/webhooks/${id}/deliveries/${delivery.id}/replay`, undefined, { idempotencyKey: unique("key") }),
          client.delete(`/webhooks/${id}`),
        ]);
        assert.equal(deleted.status, 200);
        assert.ok([202, 404].includes(replayed.status), replayed.text);
        const left = await db().selectFrom("webhook_deliveries").select("id").where("webhook_id", "=", id).execute();
        assert.deepEqual(left, []);
      }
    });
  });

  describe("its retention", () => {
    const BATCH = 2;
    const pruneLog = (mostRows = BATCH) => prune({}, { prunings: DELIVERIES, mostRows });
    const left = async (id: string) =>
      (
        await db()
          .selectFrom("webhook_deliveries")
          .select("id")
          .where("webhook_id", "=", id)
          .orderBy("created_at")
          .execute()
      ).map((row) => row.id);

    it("is 30 days, and longer for deliveries still under way", async () => {
      for (let i = 0; i < 5; i++) await insertDelivery(team, webhookId, { created_at: daysAgo(30.1) });
      const kept = [];
      for (const [days, status] of [
        [40, "PENDING"],
        [39, "RETRYING"],
        [29.9, "FAILED"],
        [0, "SUCCEEDED"],
      ] as const) {
        kept.push((await insertDelivery(team, webhookId, { created_at: daysAgo(days), status })).id);
      }
      await pruneLog();
      assert.deepEqual(await left(webhookId), kept);
    });

    it("is no event that no delivery is kept for", async () => {
      const ids: string[] = [];
      for (let i = 0; i < 5; i++) ids.push((await insertDelivery(team, webhookId)).event_id);
      const [kept = "", ...past] = ids;
      await db()
        .updateTable("webhook_events")
        .set({ kept_until: daysAgo(0.01) })
        .where("id", "in", past)
        .execute();
      await pruneLog();
      const rows = await db().selectFrom("webhook_events").select("id").where("id", "in", ids).execute();
      assert.deepEqual(rows, [{ id: kept }]);
    });

    it("ends with its endpoint, and for rows beyond 10,000 soon after", async () => {
      await sql`insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type, status)
        select ${webhookId} || n, ${team.team.id}, 'LIVE', ${webhookId}, 'evt', ${QUIET_EVENT}, 'SUCCEEDED'
        from generate_series(1, 10001) n`.execute(db());
      assert.equal((await client.delete(`/webhooks/${webhookId}`)).status, 200);
      assert.ok((await left(webhookId)).length <= 1);
      assertRefused(await page(), 404, "not_found");
      await pruneLog(10_000);
      assert.deepEqual(await left(webhookId), []);
    });
  });
});
