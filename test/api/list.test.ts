import assert from "node:assert/strict";
import fc from "fast-check";
import { z } from "zod";
import { decodeCursor, defineList, encodeCursor } from "../../api/rest/list.ts";
import { router } from "../../api/rest/route.ts";
import { instants, jsonRecord, plain as plainOf } from "../../db/json.ts";
import { kysely } from "../../db/orm.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, codeOf as code, type Json } from "../support/api.ts";
import { route, serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam } from "../support/factories.ts";

const lists = defineList({
  table: "lists",
  sorts: ["updated_at", "created_at"],
  filters: { name: z.string().max(50).optional() },
});
const plain = defineList({ table: "lists", sorts: ["created_at"] });
const item = z.object({ id: z.string(), name: z.string(), created_at: z.string(), updated_at: z.string() });
const record = (row: string) =>
  jsonRecord<{ object: "item" } & z.input<typeof item>>("item", {
    ...plainOf(row, "id", "name"),
    ...instants(row, "created_at", "updated_at"),
  });
const routes = router({
  lists: route({ method: "GET", path: "/lists", scope: null, summary: "Lists" })
    .input(z.strictObject({ query: lists.query }))
    .output(z.array(item))
    .query(({ ctx, input: { query } }) => {
      return lists.pageRecords(ctx, query, {
        values: { name: query.name },
        // No tenant here: the page sees to it.
        rows: (em, { name }) => {
          const rows = kysely(em).selectFrom("lists").selectAll("lists");
          return name === undefined ? rows : rows.where("name", "=", name);
        },
        record,
      });
    }),
  under: route({ method: "GET", path: "/under/{id}", scope: null, summary: "Lists below something" })
    .input(z.strictObject({ params: z.strictObject({ id: z.string() }), query: plain.query }))
    .output(z.array(item))
    .query(({ ctx, input: { query } }) =>
      plain.pageRecords(ctx, query, {
        values: {},
        rows: (em) => kysely(em).selectFrom("lists").selectAll("lists"),
        record,
      }),
    ),
});

describe("lists", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(routes);
  });
  after(() => app.close());
  beforeEach(async () => {
    team = await makeTeam();
  });

  const get = (path: string, key = team.keys.live) => api(key, app.base).get(path);
  const ids = (answer: ApiAnswer): string[] => answer.body.data.map((row: Json) => row.id);

  async function addLists(count: number, { at, name = "list" }: { at?: (i: number) => string; name?: string } = {}) {
    const added: string[] = [];
    for (let i = 0; i < count; i++) {
      const id = newId("list");
      const when = at?.(i) ?? new Date().toISOString();
      await team.em.execute(
        "insert into lists (id, team_id, environment, name, optin, created_at, updated_at) values (?, ?, 'LIVE', ?, 'SINGLE', ?, ?)",
        [id, team.team.id, name, when, when],
      );
      added.push(id);
    }
    return added;
  }

  async function walk(query: string): Promise<string[]> {
    const seen: string[] = [];
    let cursor: string | null = "";
    do {
      const answer: ApiAnswer = await get(`/lists?${query}${cursor ? `&cursor=${encodeURIComponent(cursor)}` : ""}`);
      assert.equal(answer.status, 200, answer.text);
      seen.push(...ids(answer));
      cursor = answer.body.meta.next_cursor;
      assert.equal(answer.body.meta.has_more, cursor !== null);
      assert.ok(cursor === null || cursor.length <= 256);
    } while (cursor);
    return seen;
  }

  it("shows each record once, in order, for every page size, also where instants are equal", async () => {
    const added = await addLists(11, { at: (i) => `2026-01-01T00:00:0${Math.floor(i / 4)}.123Z` });
    for (const limit of [1, 4, 11]) {
      for (const sort of ["updated_at", "created_at"]) {
        assert.deepEqual(await walk(`limit=${limit}&sort=${sort}&order=asc`), added);
        assert.deepEqual(await walk(`limit=${limit}&sort=${sort}`), added.toReversed());
      }
    }
  });

  it("has pages of 25 by default, and of 100 at most", async () => {
    await addLists(26);
    assert.equal(ids(await get("/lists")).length, 25);
    for (const limit of ["0", "101", "-1", "1.5", "", "x", "99999999999999999999"]) {
      const answer = await get(`/lists?limit=${limit}`);
      assert.deepEqual([code(answer), answer.body.error.param], ["validation_failed", "limit"]);
    }
  });

  it("shows texts with any characters as they are", async () => {
    const names = ['"quoted", [and] {braced}', "a\u001eb \u0001\t\n", "back\\slash", "", " ", "ä€😀\u2028"];
    for (const name of names) await addLists(1, { name });
    const { body } = await get("/lists?order=asc");
    assert.deepEqual(
      body.data.map((row: Json) => row.name),
      names,
    );
  });

  it("shows only records of its tenant, even if the route's query selects others", async () => {
    await addLists(2);
    const other = await makeTeam();
    assert.deepEqual(ids(await get("/lists", other.keys.live)), []);
    assert.deepEqual(ids(await get("/lists", team.keys.test)), []);
  });

  it("refuses parameters it does not take", async () => {
    assert.equal(code(await get("/lists?sort=name")), "sort_unsupported");
    assert.equal(code(await get("/lists?order=up")), "validation_failed");
    assert.equal(code(await get("/under/x?sort=created_at")), "unsupported_parameter");
    assert.equal(code(await get("/under/x?updated_since=2026-01-01T00:00:00Z")), "unsupported_parameter");
    for (const since of ["yesterday", "2026-01-01", "2026-13-01T00:00:00Z", "2026-01-01T00:00:00"]) {
      const answer = await get(`/lists?updated_since=${since}`);
      assert.deepEqual([code(answer), answer.body.error.param], ["validation_failed", "updated_since"]);
    }
    for (const since of ["0000-01-01T00:00:00Z", "9999-12-31T23:59:59-00:01"]) {
      assert.equal((await get(`/lists?updated_since=${since}`)).status, 200);
    }
  });

  describe("cursors", () => {
    it("are bound to their list, tenant, sort, order and filters", async () => {
      await addLists(3, { name: "same" });
      const other = await makeTeam();
      const cursorOf = async (path: string) => (await get(path)).body.meta.next_cursor as string;
      const cursor = await cursorOf("/lists?limit=1");
      const under = await cursorOf("/under/x?limit=1");
      assert.equal((await get(`/lists?limit=2&cursor=${cursor}`)).status, 200);
      for (const [path, key] of [
        [`/lists?cursor=${cursor}&sort=created_at`],
        [`/lists?cursor=${cursor}&order=asc`],
        [`/lists?cursor=${cursor}&name=same`],
        [`/lists?cursor=${cursor}&updated_since=2020-01-01T00:00:00Z`],
        [`/lists?cursor=${cursor}`, other.keys.live],
        [`/lists?cursor=${cursor}`, team.keys.test],
        [`/under/x?cursor=${cursor}`],
        [`/under/y?cursor=${under}`],
        [`/lists?cursor=${under}`],
        ["/lists?cursor="],
        [`/lists?cursor=${cursor.toLowerCase()}`],
        [`/lists?cursor=${"x".repeat(20_000)}`],
      ] as const) {
        const answer = await get(path, key);
        assert.equal(answer.status, 400);
        assert.deepEqual([code(answer), answer.body.error.param], ["cursor_invalid", "cursor"]);
      }
    });

    it("decode to the encoded value, stay within 256 characters, and no change of a character passes", async () => {
      const { vault } = await backdoor();
      const positions = fc.record(
        {
          sortedAtMs: fc.integer({ min: 0, max: 8_640_000_000_000_000 }),
          id: fc.constantFrom("list", "sub", "unsub").map((prefix) => `${prefix}_01m7yswt0zfq98dhqwrhw54g5e`),
          syncedMs: fc.option(fc.integer({ min: 0, max: 8_640_000_000_000_000 })),
        },
        { noNullPrototype: true },
      );
      fc.assert(
        fc.property(
          positions,
          fc.string(),
          fc.nat(),
          fc.string({ unit: "binary", minLength: 1, maxLength: 1 }),
          (position, binding, at, other) => {
            const cursor = encodeCursor(vault, binding, position);
            assert.ok(cursor.length <= 256);
            assert.deepEqual(decodeCursor(vault, binding, cursor), position);
            const place = at % cursor.length;
            fc.pre(cursor[place] !== other);
            const altered = cursor.slice(0, place) + other + cursor.slice(place + 1);
            assert.throws(() => decodeCursor(vault, binding, altered), ApiError);
            assert.throws(() => decodeCursor(vault, `${binding}x`, cursor), ApiError);
          },
        ),
        { numRuns: 30 },
      );
    });
  });

  describe("synced_through and updated_since", () => {
    const syncedThrough = (answer: ApiAnswer) => Date.parse(answer.body.meta.synced_through);

    it("takes updated_since inclusively, with any offset", async () => {
      const [, second] = await addLists(2, { at: (i) => `2026-01-01T00:00:0${i}.500Z` });
      assert.deepEqual(ids(await get("/lists?updated_since=2026-01-01T00:00:01.500Z")), [second]);
      assert.deepEqual(ids(await get("/lists?updated_since=2026-01-01T02:00:01.500%2B02:00")), [second]);
      assert.deepEqual(ids(await get("/lists?updated_since=2026-01-01T00:00:01.501Z")), []);
    });

    it("stands only on lists that sort by updated_at, and is that of page one on every later page", async () => {
      assert.ok(!("synced_through" in (await get("/under/x")).body.meta));
      await addLists(3);
      const first = await get("/lists?limit=1");
      assert.match(first.body.meta.synced_through, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
      const anew = async () => syncedThrough(await get("/lists?limit=1"));
      await eventually(async () => (await anew()) > syncedThrough(first), {
        what: "a later value on a later page one",
      });
      const second = await get(`/lists?limit=1&cursor=${first.body.meta.next_cursor}`);
      assert.equal(second.body.meta.synced_through, first.body.meta.synced_through);
    });

    /*
     * t0  a writer's transaction begins: what it writes will say updated_at = t0
     * t1  a client reads the list to its end; the row is not there yet
     * t2  the writer commits
     * t3  the client asks for what changed since synced_through: it must see the row
     */
    it("never skips a record of a transaction that was open when page one was read", async () => {
      const { orm } = await backdoor();
      const writer = orm.em.fork();
      await writer.begin();
      const id = newId("list");
      const [begun] = await writer.execute<{ now: string }[]>("select now()::text as now");
      await new Promise((resolve) => setTimeout(resolve, 1_200));
      await writer.execute(
        "insert into lists (id, team_id, environment, name, optin) values (?, ?, 'LIVE', 'late', 'SINGLE')",
        [id, team.team.id],
      );
      const before = await get("/lists");
      assert.deepEqual(ids(before), []);
      assert.ok(syncedThrough(before) <= Date.parse(begun?.now ?? ""));
      await writer.commit();
      const since = encodeURIComponent(before.body.meta.synced_through);
      assert.deepEqual(ids(await get(`/lists?updated_since=${since}`)), [id]);
      const later = async () => syncedThrough(await get("/lists")) > Date.parse(begun?.now ?? "");
      await eventually(later, { what: "a value after the transaction" });
    });

    it("never lies before the updated_since it was asked with", async () => {
      const [row] = await team.em.fork().execute<{ now: string }[]>("select now()::text as now");
      const since = new Date(row?.now ?? "").toISOString();
      const answer = await get(`/lists?updated_since=${encodeURIComponent(since)}`);
      assert.equal(answer.body.meta.synced_through, since);
    });
  });
});
