import assert from "node:assert/strict";
import fc from "fast-check";
import { idempotencyPolicy, isPaged, queryNames } from "../../api/rest/definition.ts";
import { forTenant, kysely, type MikroORM } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";
import { api, type Json } from "../support/api.ts";
import { openStackDatabase, unique, uniqueEmail } from "../support/factories.ts";
import { snapshotTables } from "../support/tables.ts";
import { insertDelivery, QUIET_CONTACT_EVENT, QUIET_EVENT, webhookBody } from "../support/webhooks.ts";
import { bodyOf, ENDPOINTS, type Estate, keyFor, makeAccount, makeEstate, nameOf, pathOf } from "./endpoints.ts";

const PAGED = ENDPOINTS.filter(({ meta }) => isPaged(meta));

/** How the records behind a list come to be, by its route. */
interface Records {
  table: string;
  /** The column of a record's id in the table; `id` unless given. */
  idColumn?: string;
  /** Adds one. @returns its id in the list */
  add(estate: Estate): Promise<string>;
  /** Fields of a list's sorts, the default first. */
  sorts: readonly string[];
}

const post = async (estate: Estate, path: string, body: Json): Promise<Json> => {
  const answer = await api(estate.keys.live).post(path, body);
  assert.ok(answer.status < 300, answer.text);
  return answer.body.data;
};
const BOTH = ["updated_at", "created_at"];

const RECORDS: Record<string, Records> = {
  "/lists": { table: "lists", sorts: BOTH, add: async (estate) => (await post(estate, "/lists", { name: "L" })).id },
  "/subscribers": {
    table: "subscribers",
    sorts: BOTH,
    add: async (estate) => (await post(estate, "/subscribers", { email: uniqueEmail() })).id,
  },
  "/contacts": {
    table: "contacts",
    sorts: BOTH,
    add: async (estate) => (await post(estate, "/contacts", { email: uniqueEmail() })).id,
  },
  "/newsletters": {
    table: "newsletters",
    sorts: BOTH,
    add: async (estate) => (await post(estate, "/newsletters", { name: "N" })).id,
  },
  "/campaigns": {
    table: "campaigns",
    sorts: BOTH,
    add: async (estate) => (await post(estate, "/campaigns", { name: "C" })).id,
  },
  "/suppressions": {
    table: "suppressions",
    sorts: BOTH,
    add: async (estate) => {
      const email = uniqueEmail();
      await post(estate, "/suppressions", { emails: [email] });
      return (await api(estate.keys.live).get(`/suppressions/${email}`)).body.data.id;
    },
  },
  "/unsubscribes": {
    table: "unsubscribes",
    sorts: ["unsubscribed_at", "created_at"],
    add: async ({ em, team }) => {
      const row = { id: newId("unsubscribe"), team_id: team.id, environment: "LIVE", email: uniqueEmail() } as const;
      await kysely(em.fork())
        .insertInto("unsubscribes")
        .values({ ...row, reason: "UNSUBSCRIBED", source: "link" })
        .execute();
      return row.id;
    },
  },
  "/accounts": {
    table: "email_accounts",
    sorts: BOTH,
    add: (estate) => makeAccount(estate, uniqueEmail()),
  },
  "/webhooks": {
    table: "webhook_endpoints",
    sorts: BOTH,
    add: async (estate) => (await post(estate, "/webhooks", webhookBody())).id,
  },
  "/webhooks/{webhookId}/deliveries": {
    table: "webhook_deliveries",
    sorts: ["created_at"],
    add: async (estate) => (await insertDelivery(estate, estate.values["webhookId"] ?? "")).id,
  },
  "/lists/{listId}/subscribers": {
    table: "subscriptions",
    idColumn: "subscriber_id",
    sorts: BOTH,
    add: async (estate) => {
      const { id } = await post(estate, "/subscribers", { email: uniqueEmail() });
      await post(estate, `/lists/${estate.values["listId"]}/subscribers`, { subscriber_ids: [id] });
      return id;
    },
  },
};

/** What happens beside the reading of one page. */
const step = fc.constantFrom("nothing", "add", "touch", "touch, committed a page later", "delete");
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

const FIRST_RECORDS = 7;

describe("Reading a list page by page while its records change", () => {
  let orm: MikroORM;
  before(async () => {
    // The application's role: the API sees since when its transactions are open.
    orm = await openStackDatabase("application", 5);
  });
  after(() => orm.close(true));

  it("covers every paged list", () => {
    assert.deepEqual(Object.keys(RECORDS).sort(), PAGED.map(({ meta }) => meta.path).sort());
  });

  for (const listing of PAGED) {
    const { meta } = listing;
    const own = ENDPOINTS.find(
      (endpoint) => endpoint.meta.method === "GET" && endpoint.meta.path.replace(/\/\{\w+\}$/, "") === meta.path,
    );
    const spec = RECORDS[meta.path];
    if (!own || !spec || own.meta.path === meta.path) continue;
    it(`GET ${meta.path} shows a record as GET ${own.meta.path} does`, async () => {
      const estate = await makeEstate();
      await spec.add(estate);
      const { body } = await api(estate.keys.live).get(pathOf(listing, estate.values));
      assert.ok(body.data.length > 0);
      const [, param = ""] = /\{(\w+)\}$/.exec(own.meta.path) ?? [];
      for (const record of body.data) {
        const values = { ...estate.values, [param]: param === "email" ? record.email : record.id };
        const { body: alone } = await api(estate.keys.live).get(pathOf(own, values));
        // The record's own endpoint may show more behind.
        assert.deepEqual(Object.entries(alone.data).slice(0, Object.keys(record).length), Object.entries(record));
      }
    });
  }

  interface Walked {
    /** Every record of every page, in order. */
    records: Json[];
    syncedThrough: string | undefined;
  }

  /** Reads all pages, with a step beside each of the first. */
  async function walk(estate: Estate, path: string, query: Record<string, string>, changes?: Changes): Promise<Walked> {
    const records: Json[] = [];
    let syncedThrough: string | undefined;
    let cursor: string | null = null;
    do {
      const next: string | null = cursor;
      const page = api(estate.keys.live).get(path, { query: { ...query, limit: 3, ...(next && { cursor: next }) } });
      const [answer] = await Promise.all([page, changes?.next()]);
      assert.equal(answer.status, 200, answer.text);
      syncedThrough ??= answer.body.meta.synced_through;
      records.push(...answer.body.data);
      cursor = answer.body.meta.next_cursor;
    } while (cursor !== null);
    await changes?.end();
    return { records, syncedThrough };
  }

  /** Carries the steps out, one beside each page. */
  class Changes {
    /** Records that were there before the first page and are there still. */
    readonly throughout: string[];
    readonly #estate: Estate;
    readonly #records: Records;
    readonly #steps: Step[];
    #open: (() => Promise<unknown>)[] = [];
    #turn = 0;

    constructor(estate: Estate, records: Records, existing: string[], steps: readonly Step[]) {
      this.#estate = estate;
      this.#records = records;
      this.throughout = [...existing];
      this.#steps = [...steps];
    }

    async next(): Promise<void> {
      const due = this.#open.splice(0);
      const change = this.#steps.shift() ?? "nothing";
      this.#turn++;
      if (change === "add") await this.#records.add(this.#estate);
      else if (change !== "nothing") await this.#change(change);
      for (const commit of due) await commit();
    }

    async end(): Promise<void> {
      for (const commit of this.#open.splice(0)) await commit();
    }

    async #change(change: Step): Promise<void> {
      const { table, idColumn = "id" } = this.#records;
      const at = (this.#turn * 5) % this.throughout.length;
      const id = this.throughout[at];
      if (id === undefined) return;
      const em = forTenant(orm.em, { teamId: this.#estate.team.id, environment: "LIVE" });
      if (change === "delete") {
        this.throughout.splice(at, 1);
        await em.execute(`delete from ${table} where ${idColumn} = ?`, [id]);
        return;
      }
      await em.begin();
      const column = this.#records.sorts.includes("updated_at") ? "updated_at = now()" : `${idColumn} = ${idColumn}`;
      await em.execute(`update ${table} set ${column} where ${idColumn} = ?`, [id]);
      if (change === "touch") await em.commit();
      else this.#open.push(() => em.commit());
    }
  }

  for (const endpoint of PAGED) {
    const spec = RECORDS[endpoint.meta.path];
    if (!spec) continue;
    for (const sort of spec.sorts) {
      const isSynced = sort === "updated_at";
      const promise = isSynced
        ? "it and the next incremental run miss nothing"
        : "it shows each record that was there throughout exactly once";
      it(`${nameOf(endpoint)}, sorted by ${sort}: ${promise}`, async () => {
        await fc.assert(
          fc.asyncProperty(
            fc.array(step, { minLength: 2, maxLength: 6 }),
            fc.constantFrom("asc", "desc"),
            async (steps, order) => {
              const estate = await makeEstate();
              const path = pathOf(endpoint, estate.values);
              const takesSort = queryNames(endpoint.meta).includes("sort");
              const query = { ...(takesSort && { sort }), order };
              for (let i = 0; i < FIRST_RECORDS; i++) await spec.add(estate);
              const existing = (await walk(estate, path, query)).records.map(({ id }) => id);

              const changes = new Changes(estate, spec, existing, steps);
              const { records, syncedThrough } = await walk(estate, path, query, changes);
              if (!isSynced) {
                const seen = records.map(({ id }) => id);
                assert.deepEqual(seen, [...new Set(seen)], "a record was shown twice");
                assert.deepEqual(
                  changes.throughout.filter((id) => !seen.includes(id)),
                  [],
                  "a record was left out",
                );
                return;
              }
              assert.ok(syncedThrough);
              const again = await walk(estate, path, { ...query, updated_since: syncedThrough });
              const mirror = new Map([...records, ...again.records].map((record) => [record.id, record]));
              const now = (await walk(estate, path, query)).records;
              assert.deepEqual(
                now.map(({ id }) => mirror.get(id)),
                now,
              );
            },
          ),
          { numRuns: 4, endOnFailure: true },
        );
      });
    }
  }
});

/** Two values for every field of each PATCH. */
const PATCHES: Record<string, Record<string, readonly [unknown, unknown]>> = {
  "PATCH /lists/{listId}": {
    name: ["One", "Two"],
    optin: ["SINGLE", "DOUBLE"],
    description: ["About", null],
  },
  "PATCH /subscribers/{subscriberId}": {
    email: [uniqueEmail("one"), uniqueEmail("two")],
    first_name: ["Ada", null],
    last_name: ["Lovelace", null],
  },
  "PATCH /contacts/{contactId}": {
    email: [uniqueEmail("one"), uniqueEmail("two")],
    first_name: ["Ada", null],
    last_name: ["Lovelace", null],
    fields: [{ city: "London" }, { city: "Rome" }],
  },
  "PATCH /newsletters/{newsletterId}": {
    name: ["One", "Two"],
    subject: ["Hello", "Good morning"],
    from_email: ["one@example.com", "two@example.com"],
    from_name: ["One", null],
    body: ["<p>One</p>", "<p>Two</p>"],
  },
  "PATCH /campaigns/{campaignId}": {
    name: ["One", "Two"],
    subject: ["Hello", "Good morning"],
    from_name: ["One", null],
    body: ["<p>One</p>", "<p>Two</p>"],
  },
  "PATCH /webhooks/{webhookId}": {
    url: ["https://1.1.1.1/one", "https://1.1.1.1/two"],
    events: [[QUIET_EVENT], [QUIET_CONTACT_EVENT]],
    name: ["One", "Two"],
    description: ["About", null],
    headers: [{ "x-one": "1" }, {}],
    active: [true, false],
  },
};

/** Fields of a record that follow from others: they may change with them. */
const DERIVED = new Set(["updated_at", "disabled_at", "disabled_reason", "confirmation_sent_at"]);
/** The field that shows another one, whose own value is never shown. */
const SHOWN_AS: Record<string, string> = { headers: "header_names" };

describe("A merge-patch leaves what it omits", () => {
  for (const endpoint of ENDPOINTS.filter(({ meta }) => meta.method === "PATCH")) {
    it(nameOf(endpoint), async () => {
      const estate = await makeEstate();
      const values = PATCHES[nameOf(endpoint)];
      assert.ok(values, `test/audience/properties.test.ts must know values for ${nameOf(endpoint)}`);
      const fields = Object.keys(values);
      const shape = (endpoint.meta.input.shape.body as unknown as { shape: object }).shape;
      assert.deepEqual(fields.toSorted(), Object.keys(shape).toSorted());
      const client = api(estate.keys.live);
      const path = pathOf(endpoint, estate.values);
      await fc.assert(
        fc.asyncProperty(fc.subarray(fields), fc.constantFrom(0, 1), async (changed, which) => {
          const before = (await client.get(path)).body.data;
          const body = Object.fromEntries(changed.map((field) => [field, values[field]?.[which]]));
          const answer = await client.patch(path, body);
          assert.equal(answer.status, 200, answer.text);
          const after = (await client.get(path)).body.data;
          for (const [field, value] of Object.entries(answer.body.data)) assert.deepEqual(value, after[field], field);
          const mayChange = new Set(changed.map((field) => SHOWN_AS[field] ?? field));
          for (const [field, value] of Object.entries(before)) {
            if (mayChange.has(field)) continue;
            if (changed.length > 0 && DERIVED.has(field)) continue;
            assert.deepEqual(after[field], value, `${field} after ${JSON.stringify(body)}`);
          }
          for (const field of changed.filter((name) => name in after)) assert.deepEqual(after[field], body[field]);
        }),
        { numRuns: 12 },
      );
    });
  }
});

const COPIES = 50;

/** Tables that the relay and the attempts write after the request: a delivery's first row is the request's own. */
const LATER = new Set(["webhook_groups", "webhook_deliveries", "webhook_health"]);

/** Rows that a team's tables gain by `work`. */
async function gainedRows({ em, team }: Estate, work: () => Promise<void>): Promise<Record<string, number>> {
  const count = async (): Promise<Map<string, number>> => {
    const rows = Object.entries(await snapshotTables(em, team.id)).filter(([table]) => !LATER.has(table));
    const [first] = await em.execute<{ deliveries: number }[]>(
      "select count(*)::int as deliveries from webhook_deliveries where team_id = ? and attempt = 1",
      [team.id],
    );
    return new Map([
      ...rows.map(([table, state]) => [table, Number.parseInt(state, 10)] as const),
      ["first deliveries", first?.deliveries ?? 0],
    ]);
  };
  const before = await count();
  await work();
  const gained = [...(await count())].map(([table, rows]) => [table, rows - (before.get(table) ?? 0)] as const);
  return Object.fromEntries(gained.filter(([, rows]) => rows !== 0));
}

describe(`${COPIES} copies of one request have one effect and one body`, () => {
  const keyed = ENDPOINTS.filter(({ meta }) => idempotencyPolicy(meta) !== "none");
  for (const endpoint of keyed) {
    it(nameOf(endpoint), async () => {
      const asked = (estate: Estate) => {
        const key = unique("copies");
        const body = bodyOf(endpoint, estate.newcomerId);
        const path = pathOf(endpoint, estate.values);
        return () => api(keyFor(estate, endpoint)).call(endpoint.meta.method, path, body, { idempotencyKey: key });
      };
      const many = await makeEstate();
      const ask = asked(many);
      const effect = await gainedRows(many, async () => {
        const answers = await Promise.all(Array.from({ length: COPIES }, ask));
        const settled = await ask();
        for (const { status, body, text } of answers) {
          if (body.error?.code === "request_in_flight") continue;
          assert.deepEqual([status, text], [settled.status, settled.text]);
        }
      });
      const single = await makeEstate();
      const once = await gainedRows(single, async () => void (await asked(single)()));
      assert.deepEqual(effect, once);
    });
  }
});
