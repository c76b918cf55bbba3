import assert from "node:assert/strict";
import type { Scope } from "../../domain/access/scopes.ts";
import { api } from "../support/api.ts";
import { scopesBesideSending } from "../support/factories.ts";
import { snapshotTables } from "../support/tables.ts";
import { listen } from "../webhooks/outbox.ts";
import {
  callRoute,
  ENDPOINTS,
  type Estate,
  keyFor,
  makeEstate,
  nameOf,
  pathOf,
  tablesAtRest,
  takesEmptyBody,
} from "./endpoints.ts";

/** All but the commands to a confirmed send, which the estate does not have. */
const WRITES = ENDPOINTS.filter(({ meta }) => meta.dryRun && !/\/(pause|resume|cancel)$/.test(meta.path));
const dry = { query: { dry_run: "true" } };
const NOTHING = { would_create: 0, would_update: 0, would_delete: 0, affected_count: 0, affected_ids: [], quota: null };

describe("A dry run", () => {
  let estate: Estate;
  before(async () => {
    estate = await makeEstate();
    // It subscribes to every event: one that a dry run emitted would leave a row.
    await listen(estate);
  });

  describe("of every write commits nothing and reports the outcome", () => {
    let untouched: Record<string, string>;
    before(async () => {
      untouched = await tablesAtRest(estate);
    });

    for (const endpoint of WRITES) {
      it(nameOf(endpoint), async () => {
        const call = { ...dry, subscriberId: estate.newcomerId };
        const { status, body, text } = await callRoute(endpoint, keyFor(estate, endpoint), estate.values, call);
        assert.equal(status, 200, text);
        assert.equal(body.data, null);
        const { object, would_create, would_update, would_delete, affected_count, affected_ids, ...rest } =
          body.meta.impact;
        assert.equal(object, "impact");
        assert.equal(affected_count, Math.max(would_create + would_update + would_delete, 1));
        assert.deepEqual(Object.keys(rest), ["quota"]);
        assert.ok(affected_ids.every((id: string) => !id.includes("@")));
      });
    }

    it("no table holds other rows afterwards", async () => {
      assert.deepEqual(await snapshotTables(estate.em, estate.team.id), untouched);
    });
  });

  it("is refused to a key that may not read", async () => {
    const mint = async (scopes: Scope[]) =>
      (await estate.mint({ scopes: scopes.filter((scope) => !scope.endsWith(":read")) })).key;
    const keys = { live: await mint(scopesBesideSending("OWNER")), cleanup: await mint(["suppressions:delete"]) };
    // Those with a second scope to read are refused for that one.
    for (const endpoint of WRITES.filter(({ meta }) => !meta.alsoScope)) {
      const key = keyFor({ ...estate, keys: { ...estate.keys, ...keys } }, endpoint);
      const { body, text } = await callRoute(endpoint, key, estate.values, dry);
      assert.equal(body.error?.code, "insufficient_scope", `${nameOf(endpoint)}: ${text}`);
      assert.ok(body.error.message.includes(String(endpoint.meta.dryRunScope)), text);
    }
  });

  it("is unsupported where a preview shows the effect", async () => {
    for (const endpoint of ENDPOINTS.filter(({ meta }) => meta.method !== "GET" && !meta.dryRun)) {
      const { status, body } = await callRoute(endpoint, estate.keys.live, estate.values, dry);
      assert.deepEqual([status, body.error.code], [400, "unsupported_parameter"], nameOf(endpoint));
    }
  });

  describe("counts", () => {
    let changed: Estate;
    before(async () => {
      changed = await makeEstate();
    });

    for (const endpoint of WRITES.filter(({ meta }) => meta.method === "PATCH")) {
      it(`nothing when ${nameOf(endpoint)} would change nothing`, async () => {
        const key = keyFor(changed, endpoint);
        const impactOf = async () => {
          const { body, text } = await callRoute(endpoint, key, changed.values, dry);
          assert.ok(body.meta.impact, text);
          return body.meta.impact;
        };
        const { affected_ids, ...counts } = await impactOf();
        assert.deepEqual([counts.would_update, counts.affected_count, affected_ids.length], [1, 1, 1]);
        assert.equal((await callRoute(endpoint, key, changed.values)).status, 200);
        assert.deepEqual(await impactOf(), { object: "impact", ...NOTHING });
        if (!takesEmptyBody(endpoint)) return;
        const empty = await api(key).call("PATCH", pathOf(endpoint, changed.values), {}, dry);
        assert.deepEqual(empty.body.meta.impact, { object: "impact", ...NOTHING });
      });
    }

    it("the subscriptions that a list takes along, and names the list alone", async () => {
      const client = api(changed.keys.live);
      const { listId = "" } = changed.values;
      await client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [changed.newcomerId] });
      const { body, text } = await client.delete(`/lists/${listId}`, dry);
      const { would_delete, affected_count, affected_ids } = body.meta?.impact ?? {};
      assert.deepEqual([would_delete, affected_count, affected_ids], [3, 3, [listId]], text);
      assert.equal((await client.get(`/lists/${listId}/subscribers`)).body.data.length, 2);
    });
  });
});
