import assert from "node:assert/strict";
import { sql } from "kysely";
import { DELIVERY_STATUSES, isFailure } from "../../db/entities/webhook.ts";
import { kysely } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { newId } from "../../domain/ids.ts";
import { replayDelivery } from "../../domain/webhooks/replay-delivery.ts";
import { DELIVERIES } from "../../domain/webhooks/retention.ts";
import { type ApiAnswer, type ApiClient, api, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { prune } from "../support/retention.ts";
import { snapshotTables } from "../support/tables.ts";
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

  it("is indexed by the statuses of attempts that did not succeed", async () => {
    for (const status of DELIVERY_STATUSES) {
      const { failure } = await insertDelivery(team, webhookId, { status, group_id: newId("group") });
      assert.equal(failure, isFailure(status) ? status : null);
    }
  });

  it("shows all of a delivery but its payload", async () => {
    const at = new Date("2026-08-15T10:00:00.250Z");
    const { id, event_id } = await insertDelivery(team, webhookId, {
      attempt: 3,
      status: "RETRYING",
      response_status: 503,
      response_body: "busy\n",
      error_message: "answered 503",
      duration_ms: 1_234,
      is_replay: true,
      replay_of_id: "dlv_other",
      next_attempt_at: at,
      created_at: at,
      updated_at: at,
    });
    const { status, body } = await page();
    assert.equal(status, 200);
    const instant = at.toISOString();
    assert.deepEqual(body.data, [
      {
        object: "webhook_delivery",
        id,
        webhook_id: webhookId,
        event_id,
        event_type: QUIET_EVENT,
        attempt: 3,
        status: "RETRYING",
        response_status: 503,
        response_body: "busy\n",
        error_message: "answered 503",
        duration_ms: 1_234,
        is_replay: true,
        replay_of_id: "dlv_other",
        next_attempt_at: instant,
        created_at: instant,
        updated_at: instant,
      },
    ]);
  });

  it("is read newest first, or oldest first, page by page, each delivery once", async () => {
    const ids: string[] = [];
    // Two of one instant, as a batch writes them.
    for (const days of [5, 4, 3, 3, 1]) {
      ids.push((await insertDelivery(team, webhookId, { created_at: daysAgo(days) })).id);
    }
    await insertDelivery(team, await insertAppEndpoint(team));
    for (const [order, expected] of [
      ["desc", ids.toReversed()],
      ["asc", ids],
    ] as const) {
      const seen: string[] = [];
      for (let cursor: string | undefined; ; ) {
        const answer = await page({ order, limit: 2, ...(cursor === undefined ? {} : { cursor }) });
        seen.push(...idsOf(answer));
        cursor = answer.body.meta.next_cursor ?? undefined;
        assert.equal(answer.body.meta.has_more, cursor !== undefined);
        if (cursor === undefined) break;
      }
      assert.deepEqual(new Set(seen), new Set(expected));
      assert.equal(seen.length, expected.length);
      assert.deepEqual([seen[0], seen[4]], [expected[0], expected[4]]);
    }
    assert.equal(idsOf(await page())[0], ids[4]);
  });

  it("is filtered by status, one of five", async () => {
    const made: Record<string, string> = {};
    for (const status of ["PENDING", "SUCCEEDED", "FAILED", "RETRYING", "BLOCKED"] as const) {
      made[status] = (await insertDelivery(team, webhookId, { status })).id;
    }
    for (const [status, id] of Object.entries(made)) assert.deepEqual(idsOf(await page({ status })), [id]);
    assertRefused(await page({ status: "LOST" }), 400, "validation_failed");
  });

  it("takes no sort and no updated_since, and claims no synced_through", async () => {
    for (const [name, code] of Object.entries({
      sort: "unsupported_parameter",
      updated_since: "unsupported_parameter",
      event: "filter_unsupported",
    })) {
      const answer = await page({ [name]: "created_at" });
      assertRefused(answer, 400, code);
      assert.equal(answer.body.error.param, name);
    }
    assert.ok(!("synced_through" in (await page()).body.meta));
  });

  it("gives no cursor of one endpoint away to another", async () => {
    const other = await insertAppEndpoint(team);
    for (let i = 0; i < 2; i++) await insertDelivery(team, webhookId);
    const cursor = (await page({ limit: 1 })).body.meta.next_cursor;
    assertRefused(await client.get(`/webhooks/${other}/deliveries`, { query: { cursor } }), 400, "cursor_invalid");
  });

  it("shows one attempt as its page does, under its own endpoint only", async () => {
    const { id } = await insertDelivery(team, webhookId, { error_message: "Answered with 500.", status: "FAILED" });
    await insertDelivery(team, webhookId);
    const { body: page } = await client.get(`/webhooks/${webhookId}/deliveries`, { query: { status: "FAILED" } });
    const { status, body } = await client.get(`/webhooks/${webhookId}/deliveries/${id}`);
    assert.equal(status, 200);
    assert.deepEqual([body.data], page.data);
    const elsewhere = await insertAppEndpoint(team);
    assertRefused(await client.get(`/webhooks/${elsewhere}/deliveries/${id}`), 404, "not_found");
  });

  it("shows no attempt of an endpoint that was deleted, though its row is deleted later", async () => {
    const { id } = await insertDelivery(team, webhookId);
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
        object: "webhook_delivery",
        webhook_id: webhookId,
        event_id: original.event_id,
        event_type: QUIET_EVENT,
        attempt: 1,
        status: "PENDING",
        response_status: null,
        response_body: null,
        error_message: null,
        duration_ms: null,
        is_replay: true,
        replay_of_id: original.id,
        next_attempt_at: null,
      });
      const log = (await page()).body.data;
      assert.ok(log.some((row: Json) => row.id === id));
      const { status: before, attempt } = log.find((row: Json) => row.id === original.id);
      assert.deepEqual([before, attempt], ["FAILED", 8]);
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
      assert.equal(queued.group_id, null);
      assert.ok(new Date((await event()).kept_until) >= daysAgo(-30.9));

      await db()
        .updateTable("webhook_events")
        .set({ kept_until: daysAgo(-60) })
        .where("id", "=", original.event_id)
        .execute();
      await replay(original.id);
      assert.ok(new Date((await event()).kept_until) > daysAgo(-59), "never shortened");
    });

    it("can be done with a replay too", async () => {
      const original = await insertDelivery(team, webhookId);
      const first = (await replay(original.id)).body.data;
      const second = (await replay(first.id)).body.data;
      assert.deepEqual([second.replay_of_id, second.event_id], [first.id, original.event_id]);
    });

    it("needs an Idempotency-Key, under which twenty racing ones queue one", async () => {
      const { id } = await insertDelivery(team, webhookId);
      assertRefused(await replay(id, { idempotencyKey: undefined }), 400, "idempotency_key_required");
      const idempotencyKey = unique("key");
      const answers = await Promise.all(Array.from({ length: 20 }, () => replay(id, { idempotencyKey })));
      for (const { status, body } of answers) assert.ok(status === 202 || body.error.code === "request_in_flight");
      assert.ok(answers.some(({ status }) => status === 202));
      assert.equal(await count(), 2);
    });

    it("takes no body", async () => {
      const { id } = await insertDelivery(team, webhookId);
      assertRefused(await replay(id, {}, { force: true }), 400, "validation_failed");
      assert.equal((await replay(id, {}, {})).status, 202);
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

    it("finds a delivery under its own endpoint only", async () => {
      const elsewhere = await insertDelivery(team, await insertAppEndpoint(team));
      assertRefused(await replay(elsewhere.id), 404, "not_found");
    });

    it("describes its effect on a dry run and changes nothing", async () => {
      const { id } = await insertDelivery(team, webhookId);
      const before = await snapshotTables(team.em, team.team.id);
      const { status, body } = await replay(id, { query: { dry_run: "true" } });
      assert.equal(status, 200);
      assert.equal(body.meta.impact.would_create, 1);
      assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
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
      await sql`insert into webhook_deliveries (id, team_id, environment, webhook_id, event_id, event_type, group_id, status)
        select ${webhookId} || n, ${team.team.id}, 'LIVE', ${webhookId}, 'evt', ${QUIET_EVENT}, 'done', 'SUCCEEDED'
        from generate_series(1, 10001) n`.execute(db());
      assert.equal((await client.delete(`/webhooks/${webhookId}`)).status, 200);
      assert.ok((await left(webhookId)).length <= 1);
      assertRefused(await page(), 404, "not_found");
      await pruneLog(10_000);
      assert.deepEqual(await left(webhookId), []);
    });

    it("is nothing of an endpoint that was deleted, however long its log, or late a row of it", async () => {
      await client.delete(`/webhooks/${webhookId}`);
      // Rows that a deletion left over, or that an attempt under way wrote.
      for (let i = 0; i < 5; i++) await insertDelivery(team, webhookId, { status: "PENDING" });
      const marked = () =>
        db().selectFrom("deleted_webhooks").select("webhook_id").where("webhook_id", "=", webhookId).execute();
      await pruneLog();
      assert.deepEqual(await left(webhookId), []);
      assert.equal((await marked()).length, 1, "another row may come");
      await db()
        .updateTable("deleted_webhooks")
        .set({ deleted_at: daysAgo(1) })
        .where("webhook_id", "=", webhookId)
        .execute();
      await pruneLog();
      assert.deepEqual(await marked(), []);
    });
  });
});
