import assert from "node:assert/strict";
import type { Scope } from "../../domain/access/scopes.ts";
import { api } from "../support/api.ts";
import { snapshotTables } from "../support/tables.ts";
import { callRoute, ENDPOINTS, type Estate, keyFor, makeEstate, nameOf } from "./endpoints.ts";

const WRITES = ENDPOINTS.filter(({ meta }) => meta.method !== "GET");
/** Routes without a dry run: their preview shows their effect. */
const WITHOUT = ["POST /newsletters/{newsletterId}/send", "POST /campaigns/{campaignId}/send"];

describe("dry_run on every write", () => {
  let estate: Estate;
  before(async () => {
    estate = await makeEstate();
  });

  for (const endpoint of WRITES.filter((candidate) => !WITHOUT.includes(nameOf(candidate)))) {
    const dry = { dry_run: "true" };

    it(`${nameOf(endpoint)} reports the outcome and commits nothing`, async () => {
      const key = keyFor(estate, endpoint);
      const before = await snapshotTables(estate.em, estate.team.id);
      const call = { query: dry, subscriberId: estate.newcomerId };
      const { status, body, text } = await callRoute(endpoint, key, estate.values, call);
      assert.equal(status, 200, text);
      assert.equal(body.data, null);
      const { object, would_create, would_update, would_delete, affected_count, affected_ids, ...rest } =
        body.meta.impact;
      assert.equal(object, "impact");
      assert.equal(affected_count, Math.max(would_create + would_update + would_delete, 1));
      assert.deepEqual(Object.keys(rest), ["quota"]);
      assert.ok(affected_ids.every((id: string) => !id.includes("@")));
      assert.deepEqual(await snapshotTables(estate.em, estate.team.id), before);
    });

    it(`${nameOf(endpoint)} refuses the dry run to a key that may not read`, async () => {
      assert.ok(endpoint.meta.dryRunScope);
      const { key } = await estate.mint({ scopes: [endpoint.meta.scope as Scope], sendDomains: ["example.com"] });
      const { status, body } = await callRoute(endpoint, key, estate.values, { query: dry });
      assert.equal(status, 403);
      assert.equal(body.error.code, "insufficient_scope");
      assert.ok(body.error.message.includes(endpoint.meta.dryRunScope));
    });

    it(`${nameOf(endpoint)} takes true and false only`, async () => {
      const { status, body } = await callRoute(endpoint, keyFor(estate, endpoint), estate.values, {
        query: { dry_run: "1" },
      });
      assert.equal(status, 400);
      assert.equal(body.error.param, "dry_run");
    });
  }

  for (const endpoint of WRITES.filter((candidate) => WITHOUT.includes(nameOf(candidate)))) {
    it(`${nameOf(endpoint)} does not take it`, async () => {
      const { status, body } = await callRoute(endpoint, estate.keys.live, estate.values, {
        query: { dry_run: "true" },
      });
      assert.equal(status, 400);
      assert.equal(body.error.code, "unsupported_parameter");
    });
  }

  for (const endpoint of WRITES.filter(({ meta }) => meta.method === "PATCH")) {
    it(`${nameOf(endpoint)} counts nothing when nothing would change`, async () => {
      const { values, ...team } = await makeEstate();
      const key = keyFor(team, endpoint);
      const dry = async () => {
        const { body, text } = await callRoute(endpoint, key, values, { query: { dry_run: "true" } });
        assert.ok(body.meta.impact, text);
        return body.meta.impact;
      };
      const { affected_ids, ...counts } = await dry();
      assert.deepEqual([counts.would_update, counts.affected_count, affected_ids.length], [1, 1, 1]);
      assert.equal((await callRoute(endpoint, key, values)).status, 200);
      const none = {
        would_create: 0,
        would_update: 0,
        would_delete: 0,
        affected_count: 0,
        affected_ids: [],
        quota: null,
      };
      assert.deepEqual(await dry(), { object: "impact", ...none });
      const path = endpoint.meta.path.replace(/\{(\w+)\}/, (_, name: string) => values[name] ?? "");
      const empty = await api(key).call("PATCH", path, {}, { query: { dry_run: "true" } });
      assert.deepEqual(empty.body.meta.impact, { object: "impact", ...none });
    });
  }

  it("counts the subscriptions that a list takes along, and names the list alone", async () => {
    const { values, newcomerId, keys } = await makeEstate();
    const client = api(keys.live);
    const { listId = "" } = values;
    await client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [newcomerId] });
    const { body, text } = await client.delete(`/lists/${listId}`, { query: { dry_run: "true" } });
    const { would_delete, affected_count, affected_ids } = body.meta?.impact ?? {};
    assert.deepEqual([would_delete, affected_count, affected_ids], [3, 3, [listId]], text);
    assert.equal((await client.get(`/lists/${listId}/subscribers`)).body.data.length, 2);
  });

  it("is refused where the real write would be", async () => {
    const patch = WRITES.find((endpoint) => nameOf(endpoint) === "PATCH /newsletters/{newsletterId}");
    assert.ok(patch);
    const values = { ...estate.values, newsletterId: "nl_absent" };
    assert.equal((await callRoute(patch, estate.keys.live, values, { query: { dry_run: "true" } })).status, 404);
  });
});
