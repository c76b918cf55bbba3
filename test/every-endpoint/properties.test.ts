import assert from "node:assert/strict";
import { isPaged, queryNames } from "../../api/rest/definition.ts";
import { forTenant, kysely, type MikroORM } from "../../db/orm.ts";
import { type ApiAnswer, api, type Json } from "../support/api.ts";
import { openStackDatabase, uniqueEmail } from "../support/factories.ts";
import { insertDelivery, QUIET_CONTACT_EVENT } from "../support/webhooks.ts";
import {
  ENDPOINTS,
  type Estate,
  endpointNamed,
  makeEstate,
  nameOf,
  newUnsubscribe,
  pathOf,
  takesEmptyBody,
} from "./endpoints.ts";

interface Listing {
  table: string;
  /** The column of a record's id in the table; `id` unless given. */
  idColumn?: string;
  sort: string;
  add(estate: Estate): Promise<unknown>;
}

async function post(estate: Estate, path: string, body: Json): Promise<Json> {
  const answer = await api(estate.keys.live).post(path, body);
  assert.ok(answer.status < 300, answer.text);
  return answer.body.data;
}

/** Lists that differ: of records that change, of pairs, of records that never change, and without a choice of sorts. */
const LISTINGS: Record<string, Listing> = {
  "GET /contacts": {
    table: "contacts",
    sort: "updated_at",
    add: (estate) => post(estate, "/contacts", { email: uniqueEmail() }),
  },
  "GET /lists/{listId}/subscribers": {
    table: "subscriptions",
    idColumn: "subscriber_id",
    sort: "updated_at",
    add: async (estate) => {
      const { id } = await post(estate, "/subscribers", { email: uniqueEmail() });
      await post(estate, `/lists/${estate.values["listId"]}/subscribers`, { subscriber_ids: [id] });
    },
  },
  "GET /unsubscribes": {
    table: "unsubscribes",
    sort: "unsubscribed_at",
    add: (estate) => kysely(estate.em.fork()).insertInto("unsubscribes").values(newUnsubscribe(estate)).execute(),
  },
  "GET /webhooks/{webhookId}/deliveries": {
    table: "webhook_deliveries",
    sort: "created_at",
    add: (estate) => insertDelivery(estate, estate.values["webhookId"] ?? ""),
  },
};

const FIRST_RECORDS = 8;

describe("A list", () => {
  it("shows each record as the record's own endpoint does", async () => {
    const estate = await makeEstate();
    const client = api(estate.keys.live);
    let compared = 0;
    for (const listing of ENDPOINTS.filter(({ meta }) => isPaged(meta))) {
      const own = ENDPOINTS.find(
        ({ meta }) =>
          meta.method === "GET" &&
          meta.path !== listing.meta.path &&
          meta.path.replace(/\/\{\w+\}$/, "") === listing.meta.path,
      );
      if (!own) continue;
      const { body } = await client.get(pathOf(listing, estate.values));
      assert.ok(body.data.length > 0, nameOf(listing));
      const [, param = ""] = /\{(\w+)\}$/.exec(own.meta.path) ?? [];
      for (const record of body.data) {
        const values = { ...estate.values, [param]: param === "email" ? record.email : record.id };
        const { body: alone } = await client.get(pathOf(own, values));
        // The record's own endpoint may show more behind.
        assert.deepEqual(Object.entries(alone.data).slice(0, Object.keys(record).length), Object.entries(record));
        compared++;
      }
    }
    assert.ok(compared >= 9, `${compared} records`);
  });
});

describe("Reading a list page by page while its records change", () => {
  let orm: MikroORM;
  before(async () => {
    // The application's role: the API sees since when its transactions are open.
    orm = await openStackDatabase("application", 5);
  });
  after(() => orm.close(true));

  /** Reads all pages, each beside the next of these steps. */
  async function walk(
    key: string,
    path: string,
    query: Record<string, string>,
    steps: (() => Promise<unknown>)[] = [],
  ) {
    const records: Json[] = [];
    let syncedThrough = "";
    let cursor: string | null = "";
    for (let page = 0; cursor !== null; page++) {
      const asked = api(key).get(path, { query: { ...query, limit: 3, ...(cursor && { cursor }) } });
      const [answer]: [ApiAnswer, unknown] = await Promise.all([asked, steps[page]?.()]);
      assert.equal(answer.status, 200, answer.text);
      syncedThrough ||= answer.body.meta.synced_through;
      records.push(...answer.body.data);
      cursor = answer.body.meta.next_cursor;
    }
    return { records, ids: records.map(({ id }): string => id), syncedThrough };
  }

  for (const [name, { table, idColumn = "id", sort, add }] of Object.entries(LISTINGS)) {
    const isSynced = sort === "updated_at";
    const promise = isSynced
      ? "it and the next incremental run miss nothing"
      : "it shows each record that was there throughout exactly once";
    for (const order of ["asc", "desc"]) {
      it(`${name}, sorted by ${sort}, ${order}: ${promise}`, async () => {
        const estate = await makeEstate();
        const endpoint = endpointNamed(name);
        const path = pathOf(endpoint, estate.values);
        const query = { order, ...(queryNames(endpoint.meta).includes("sort") && { sort }) };
        const read = (more = {}, steps = [] as (() => Promise<unknown>)[]) =>
          walk(estate.keys.live, path, { ...query, ...more }, steps);
        for (let i = 0; i < FIRST_RECORDS; i++) await add(estate);
        const { ids: existing } = await read();
        const [first = "", , , fourth = "", fifth = "", , seventh = ""] = existing;

        const [now, late] = [0, 1].map(() => forTenant(orm.em, { teamId: estate.team.id, environment: "LIVE" }));
        assert.ok(now && late);
        const touched = isSynced ? "updated_at = now()" : `${idColumn} = ${idColumn}`;
        const touch = `update ${table} set ${touched} where ${idColumn} = ?`;
        const { ids, records, syncedThrough } = await read({}, [
          async () => {
            await late.begin();
            await late.execute(touch, [fourth]);
            await now.execute(touch, [first]);
          },
          async () => {
            await add(estate);
            await now.execute(touch, [seventh]);
          },
          async () => {
            await late.commit();
            await now.execute(`delete from ${table} where ${idColumn} = ?`, [fifth]);
          },
        ]);
        if (!isSynced) {
          assert.deepEqual(ids, [...new Set(ids)], "a record was shown twice");
          const missed = existing.filter((id) => id !== fifth && !ids.includes(id));
          assert.deepEqual(missed, [], "a record was left out");
          return;
        }
        const again = await read({ updated_since: syncedThrough });
        const mirror = new Map([...records, ...again.records].map((record) => [record.id, record]));
        const current = (await read()).records;
        assert.deepEqual(
          current.map(({ id }) => mirror.get(id)),
          current,
        );
      });
    }
  }
});

/** Another value than that of the estate for every field of each PATCH. */
const PATCHES: Record<string, Json> = {
  "PATCH /lists/{listId}": { name: "Two", optin: "DOUBLE", description: "About" },
  "PATCH /lists/{listId}/subscribers/{subscriberId}": { status: "UNSUBSCRIBED" },
  "PATCH /subscribers/{subscriberId}": {
    email: uniqueEmail("two"),
    first_name: "Ada",
    last_name: "Lovelace",
    tracking_consent: { status: "granted" },
  },
  "PATCH /contacts/{contactId}": {
    ...{ email: uniqueEmail("two"), first_name: "Ada", last_name: "Lovelace" },
    ...{ fields: { city: "London" }, tracking_consent: { status: "granted" } },
  },
  "PATCH /newsletters/{newsletterId}": {
    ...{ name: "Two", subject: "Good morning", body: "<p>Two</p>" },
    ...{ from_email: "two@example.com", from_name: "Two" },
  },
  "PATCH /campaigns/{campaignId}": { name: "Two", subject: "Good morning", from_name: "Two", body: "<p>Two</p>" },
  "PATCH /webhooks/{webhookId}": {
    ...{ url: "https://1.1.1.1/two", events: [QUIET_CONTACT_EVENT], name: "Two", description: "About" },
    ...{ headers: { "x-one": "1" }, active: false },
  },
};

/** Fields of a record that follow from others: they may change with them. */
const DERIVED = new Set(["updated_at", "disabled_at", "disabled_reason", "confirmation_sent_at", "unsubscribed_at"]);
/** The field that shows another one, whose own value is never shown. */
const SHOWN_AS: Record<string, string> = { headers: "header_names" };

describe("A merge-patch leaves what it omits", () => {
  for (const endpoint of ENDPOINTS.filter(({ meta }) => meta.method === "PATCH")) {
    it(nameOf(endpoint), async () => {
      const values = PATCHES[nameOf(endpoint)];
      assert.ok(values, `test/every-endpoint/properties.test.ts must know values for ${nameOf(endpoint)}`);
      const shape = (endpoint.meta.input.shape.body as unknown as { shape: object }).shape;
      assert.deepEqual(Object.keys(values).sort(), Object.keys(shape).sort());
      const estate = await makeEstate();
      const client = api(estate.keys.live);
      const path = pathOf(endpoint, estate.values);
      // A subscriber of a list is read in the list.
      const isRead = ENDPOINTS.some(({ meta }) => meta.method === "GET" && meta.path === endpoint.meta.path);
      const read = async () =>
        isRead ? (await client.get(path)).body.data : (await client.get(path.replace(/\/[^/]+$/, ""))).body.data[0];
      let before = await read();
      const changes: Json[] = Object.entries(values).map(([field, value]) => ({ [field]: value }));
      for (const body of takesEmptyBody(endpoint) ? [{}, ...changes] : changes) {
        const answer = await client.patch(path, body);
        assert.equal(answer.status, 200, answer.text);
        const after = await read();
        for (const [field, value] of Object.entries(answer.body.data)) assert.deepEqual(value, after[field], field);
        for (const [field, value] of Object.entries(body)) {
          if (field in after) assert.partialDeepStrictEqual({ [field]: after[field] }, { [field]: value });
          assert.notDeepEqual(after[SHOWN_AS[field] ?? field], before[SHOWN_AS[field] ?? field], `${field} is changed`);
        }
        const others = Object.keys(before).filter(
          (field) => !Object.keys(body).some((name) => (SHOWN_AS[name] ?? name) === field) && !DERIVED.has(field),
        );
        for (const field of others)
          assert.deepEqual(after[field], before[field], `${field} after ${JSON.stringify(body)}`);
        if (Object.keys(body).length === 0) assert.deepEqual(after, before);
        before = after;
      }
    });
  }
});
