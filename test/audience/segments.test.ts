import assert from "node:assert/strict";
import { mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { sql } from "kysely";
import { forTenant, kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { deleteField } from "../../domain/audience/contact-fields.ts";
import { SEGMENT_LIMITS } from "../../domain/audience/segments/compilation.ts";
import { countSegment, createSegment, MAX_SEGMENTS, PATIENT_COUNT } from "../../domain/audience/segments/segments.ts";
import { newId } from "../../domain/ids.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { accept, engage, makeLedger, report, setState } from "../analytics/ledger.ts";
import { settleAll } from "../public/tracking.ts";
import type { ApiClient, Json } from "../support/api.ts";
import { refused, run } from "../support/command.ts";
import { declareFields, makeTeamWithFields } from "../support/contacts.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { type StoredPerson, storePeople } from "./segments.ts";

const FIELDS = { city: "text", orders: "number", vip: "boolean", born: "date" } as const;
const IN_ROME = { field: "fields.city", op: "eq", value: "Rome" };
const AT = "2026-11-01T12:00:00.000Z";

function nested(depth: number): Json {
  let conditions: Json = IN_ROME;
  for (let level = 1; level < depth; level++) conditions = { not: conditions };
  return conditions;
}

describe("Segments", () => {
  let team: TestTeam;
  let tenant: Tenant;
  let client: ApiClient;
  beforeEach(async () => {
    ({ team, tenant, client } = await makeTeamWithFields(FIELDS));
  });

  const person = (facts: Partial<StoredPerson> = {}): StoredPerson => ({
    id: newId("contact"),
    email: uniqueEmail(),
    first_name: null,
    last_name: null,
    fields: {},
    email_status: "ACTIVE",
    created_at: AT,
    updated_at: AT,
    lists: {},
    events: [],
    ...facts,
  });
  const store = async <T extends Record<string, StoredPerson>>(people: T): Promise<T> => {
    await storePeople(team.em, tenant, Object.values(people));
    return people;
  };
  const create = async (definition: Json, of = tenant): Promise<string> => {
    const em = forTenant(team.em, of);
    return (await transaction(em, (tx) => createSegment(tx, of, { name: "Segment", conditions: definition }))).id;
  };
  const count = (id: string, of = tenant) => countSegment(forTenant(team.em, of), of, id);
  const makeList = async (): Promise<string> => (await client.post("/lists", { name: "List" })).body.data.id;
  const makeNewsletter = async (): Promise<string> => (await client.post("/newsletters", { name: "L" })).body.data.id;

  describe("by the command line", () => {
    // Each command is a process.
    let folder: string;
    before(async () => {
      folder = await mkdtemp(join(tmpdir(), "mailkeel-segments-"));
    });
    after(() => rm(folder, { recursive: true }));

    it("are stored, listed, shown, counted with some addresses, and deleted", async () => {
      const people = await store({
        roman: person({ fields: { city: "Rome" } }),
        other: person({ fields: { city: "Bonn" } }),
      });
      const file = join(folder, "conditions.json");
      await writeFile(file, JSON.stringify({ all: [IN_ROME, { not: { ...IN_ROME, value: "Bonn" } }] }));
      const ofTeam = ["--team", team.team.id];
      const { segment } = await run("segment:create", "Romans", "--file", file, ...ofTeam);
      assert.match(segment.id, /^seg_/);
      assert.deepEqual((await run("segment:show", segment.id)).segment, {
        id: segment.id,
        name: "Romans",
        conditions: { all: [IN_ROME, { not: { ...IN_ROME, value: "Bonn" } }] },
        created_at: segment.created_at,
        updated_at: segment.created_at,
      });
      assert.deepEqual((await run("segment:list", ...ofTeam)).segments, [segment]);
      assert.deepEqual(await run("segment:count", segment.id), {
        segment: segment.id,
        contacts: 1,
        is_estimate: false,
        sample: [people.roman.email],
      });

      assert.deepEqual(await run("segment:delete", segment.id), { segment: { id: segment.id, deleted: true } });
      assert.deepEqual((await run("segment:list", ...ofTeam)).segments, []);
      await refused(/There is no record seg_/, "segment:count", segment.id);
      const { deleted_at } = (await run("segment:show", segment.id)).segment;
      assert.ok(Date.parse(deleted_at) > Date.parse(segment.created_at), "campaigns that were sent may name it");
    });

    it("are refused with the place of the mistake, and without conditions", async () => {
      const ofTeam = ["--team", team.team.id];
      const conditions = JSON.stringify({ any: [IN_ROME, { ...IN_ROME, op: "like" }] });
      await refused(
        /conditions\.any\[1\]\.op must be one of eq, ne, in, contains/,
        "segment:create",
        "x",
        "--conditions",
        conditions,
        ...ofTeam,
      );
      await refused(/not valid JSON/, "segment:create", "x", "--conditions", "{", ...ofTeam);
      await refused(/--conditions or --file/, "segment:create", "x", ...ofTeam);
    });
  });

  it("take a mail as received that analytics count as delivered", async () => {
    const ledger = await makeLedger(team, 9);
    const at = new Date().toISOString();
    const { em } = team;
    await accept(em, ledger, [1, 2, 3, 4], at);
    await setState(em, ledger, [5, 6, 7, 8], "UNKNOWN", at);
    await setState(em, ledger, [9], "SENDING", at);
    await setState(em, ledger, [9], "REJECTED", at);
    await report(em, ledger, [2, 8], ["bounce:hard"], at);
    await report(em, ledger, [3], ["bounce:soft"], at);
    await report(em, ledger, [4, 7], ["complaint"], at);
    await engage(em, ledger, [6], "opened", 1);
    await storePeople(
      em,
      tenant,
      Array.from({ length: 9 }, (_, i) => person({ email: `${i + 1}@example.com` })),
    );
    const resource = ledger.newsletterId;
    for (const condition of [{ event: "received" }, { event: "received", resource, within_days: 1 }]) {
      const { contacts, sample } = await count(await create(condition));
      assert.deepEqual([contacts, sample.sort()], [4, [1, 4, 6, 7].map((n) => `${n}@example.com`)]);
    }
    const { totals } = (await client.get("/analytics/overview", { query: { resource_id: resource } })).body.data;
    assert.equal(totals.delivered, 4);
    await em.execute("update send_recipients set tracked = seq <> 4 where send_id = ?", [ledger.sendId]);
    const unopened = { all: [{ event: "received_tracked", resource }, { not: { event: "opened", resource } }] };
    assert.deepEqual((await count(await create(unopened))).sample.sort(), ["1@example.com", "7@example.com"]);

    assert.deepEqual(
      (await count(await create({ event: "bounced", resource, within_days: 1 }))).sample.sort(),
      [2, 3, 8].map((n) => `${n}@example.com`),
    );
    await em.execute(
      `insert into unsubscribes (id, team_id, environment, email, reason, source, campaign_id)
       values (?, ?, ?, '6@example.com', 'unwanted', 'link', ?)`,
      [newId("unsubscribe"), tenant.teamId, tenant.environment, resource],
    );
    const left = await create({ event: "unsubscribed", resource });
    assert.deepEqual((await count(left)).sample, ["6@example.com"]);

    const clicks = [1, 6, 8].map((seq) => ({ seq, url: `https://shop.example/${seq % 2}` }));
    const hit = { sendId: ledger.sendId, kind: "clicked", at: Date.now() + 3_600_000, source: "reader" } as const;
    await recordHits(
      em,
      clicks.map((click) => ({ ...hit, ...click, rule: null, early: false })),
    );
    await settleAll(em, ledger.sendId);
    const [{ id: link }] = (await client.get(`/newsletters/${resource}/links`)).body.data;
    for (const condition of [
      { event: "clicked", link },
      { event: "clicked", resource, link },
    ]) {
      const { contacts, sample } = await count(await create(condition));
      assert.deepEqual([contacts, sample.sort()], [2, ["6@example.com", "8@example.com"]]);
    }
    const elsewhere = await create({ event: "clicked", resource: await makeNewsletter(), link });
    assert.equal((await count(elsewhere)).contacts, 0);
    const other = { ...tenant, environment: "TEST" } as const;
    await storePeople(em, other, [person({ email: "6@example.com" })]);
    await assert.rejects(create({ event: "clicked", link }, other), /must be the id of a link that was clicked/);
  });

  it("see the contacts, lists and mails of their own team and environment alone", async () => {
    const list = await makeList();
    const newsletter = await makeNewsletter();
    const email = uniqueEmail();
    await store({
      here: person({
        email,
        lists: { [list]: "CONFIRMED" },
        events: [{ event: "received", resource: newsletter, at: AT }],
      }),
    });
    const another = await makeTeam();
    for (const other of [
      { teamId: tenant.teamId, environment: "TEST" },
      { teamId: another.team.id, environment: "LIVE" },
    ] as const) {
      await storePeople(team.em, other, [person({ email })]);
      const received = await create({ event: "received" }, other);
      assert.deepEqual(await count(received, other), { contacts: 0, is_estimate: false, sample: [] });
      assert.equal((await count(await create({ not: { event: "received" } }, other), other)).contacts, 1);
      await assert.rejects(create({ list }, other), /^ApiError: conditions\.list must be the id of a list/);
      await assert.rejects(create({ event: "received", resource: newsletter }, other), /conditions\.resource must be/);
      await assert.rejects(count(await create({ event: "received" }), other), { code: "not_found" });
    }
  });

  describe("refuse at their creation", () => {
    const refusals: Record<string, [definition: Json, message: RegExp]> = {
      "no condition": [{}, /^conditions is of no known kind: it must have one of all, any, not, field, list, event/],
      "a kind that is not known": [{ all: [IN_ROME, { near: "Rome" }] }, /^conditions\.all\[1\] is of no known kind/],
      "two kinds at once": [{ all: [IN_ROME], any: [IN_ROME] }, /^conditions takes all, and not "any"/],
      "an empty group": [{ any: [] }, /^conditions\.any must be a list that is not empty/],
      "a property that is not known": [
        { not: { ...IN_ROME, case: 1 } },
        /^conditions\.not takes field, op, value, and not "case"/,
      ],
      "a column that is not for conditions": [
        { ...IN_ROME, field: "team_id" },
        /^conditions\.field must be email, .* or fields\./,
      ],
      "an operator of another type": [
        { ...IN_ROME, op: "gt" },
        /^conditions\.op must be one of eq, ne, in, contains, starts_with, exists/,
      ],
      "a text of 501 characters": [
        { ...IN_ROME, value: "x".repeat(501) },
        /^conditions\.value must be a text of one line/,
      ],
      "a NUL": [{ ...IN_ROME, value: "a\0b" }, /^conditions\.value must be a text/],
      "a search for nothing": [{ ...IN_ROME, op: "contains", value: "" }, /^conditions\.value must not be empty/],
      "a value within a list": [{ ...IN_ROME, op: "in", value: ["Rome", 3] }, /^conditions\.value\[1\] must be a text/],
      "a number as text": [{ field: "fields.orders", op: "gt", value: "3" }, /^conditions\.value must be a number/],
      "a day that is none": [
        { field: "fields.born", op: "lt", value: "2026-02-30" },
        /^conditions\.value must be a day/,
      ],
      "an instant without offset": [
        { field: "created_at", op: "lt", value: "2026-01-01T00:00:00" },
        /^conditions\.value must be a day, .* or an instant/,
      ],
      "a relative day too far": [
        { field: "fields.born", op: "lt", value: { days_from_today: 1e6 } },
        /^conditions\.value\.days_from_today must be a whole number of days from -36500 to 36500/,
      ],
      "a link that was opened": [
        { event: "opened", link: "lnk_x" },
        /^conditions\.link is taken with the event clicked, and without within_days/,
      ],
      "a link that was not clicked": [
        { not: { event: "clicked", link: "lnk_x" } },
        /^conditions\.not\.link must be the id of a link that was clicked/,
      ],
      "half a day": [{ event: "opened", within_days: 0.5 }, /^conditions\.within_days must be a whole number/],
      "a status of no contact": [
        { field: "email_status", op: "eq", value: "BROKEN" },
        /^conditions\.value must be one of ACTIVE, INVALID/,
      ],
      "a list that there is not": [
        { any: [IN_ROME, { list: "list_x" }] },
        /^conditions\.any\[1\]\.list must be the id of a list/,
      ],
      "an event that is not known": [
        { event: "sent" },
        /^conditions\.event must be one of received, received_tracked, opened, clicked, bounced, unsubscribed/,
      ],
      "conditions that are too deep": [
        nested(SEGMENT_LIMITS.depth + 1),
        /^conditions(\.not){10} is deeper than the 10 conditions/,
      ],
      "too many joins": [
        { any: Array(11).fill({ event: "opened" }) },
        /^conditions\.any\[10\] is beyond the 10 conditions on lists and events/,
      ],
      "conditions that are too long": [
        { field: "first_name", op: "in", value: Array(900).fill("x".repeat(200)) },
        /^conditions must have at most 100000 characters/,
      ],
      "more values than are compiled, before one is read": [
        { field: "created_at", op: "in", value: Array(SEGMENT_LIMITS.elements + 1).fill("no day") },
        /^conditions must have at most 2000 conditions and values/,
      ],
      "conditions that cannot be written as JSON": [nested(20_000), /^conditions must have at most 100000 characters/],
    };
    it(Object.keys(refusals).join(", "), async () => {
      for (const [what, [definition, message]] of Object.entries(refusals)) {
        await assert.rejects(create(definition), ({ code, message: text }) => {
          assert.equal(code, "validation_failed", what);
          assert.match(text, message, what);
          return true;
        });
      }
    });

    it("an empty name, and one of two lines", async () => {
      for (const name of ["", "a\nb", "x".repeat(201)]) {
        const making = transaction(team.em, (em) => createSegment(em, tenant, { name, conditions: IN_ROME }));
        await assert.rejects(making, { code: "validation_failed", param: "name" });
      }
    });

    it(`more than ${MAX_SEGMENTS} segments of a team`, async () => {
      await sql`insert into segments (id, team_id, environment, name, conditions)
        select ${newId("segment")} || i, ${tenant.teamId}, 'LIVE', 'x', '{}'
        from generate_series(1, ${MAX_SEGMENTS}::int) i`.execute(kysely(team.em));
      await assert.rejects(create(IN_ROME), { code: "resource_limit_reached" });
    });
  });

  describe("that cannot be evaluated exactly any more", () => {
    const unsupported = async (id: string, message: RegExp) => {
      await assert.rejects(count(id), ({ code, message: text }) => {
        assert.equal(code, "filter_unsupported");
        assert.match(text, message);
        assert.ok(text.includes(id));
        assert.match(text, /Make another segment in the app, and attach it\.$/);
        return true;
      });
    };
    const change = (id: string, column: string, value: unknown) =>
      sql`update segments set ${sql.ref(column)} = ${value} where id = ${id}`.execute(kysely(team.em));

    it("name the condition whose custom field was deleted, or has another type now", async () => {
      const id = await create({ not: { field: "fields.born", op: "gt", value: "2026-01-31" } });
      await deleteField(team.em, tenant, "born");
      await unsupported(id, /conditions\.not\.field must be .*, and there is no field born/);
      await declareFields(team, { born: "text" });
      await unsupported(id, /conditions\.not\.op must be one of/);
      await refused(/conditions\.not\.op/, "segment:count", id);
    });

    it("name the list that was deleted", async () => {
      const list = await makeList();
      const id = await create({ all: [{ not: { list } }] });
      assert.equal((await client.delete(`/lists/${list}`)).status, 200);
      await unsupported(id, /conditions\.all\[0\]\.not\.list must be the id of a list/);
    });

    it("name the kind that is not known", async () => {
      const id = await create(IN_ROME);
      await change(id, "conditions", JSON.stringify({ all: [{ near: "Rome" }] }));
      await unsupported(id, /conditions\.all\[0\] is of no known kind/);
    });
  });

  describe("as statements", () => {
    it("are bounded: the largest segment is counted, and estimated where that takes too long", async () => {
      const rows = 5_000;
      const stem = unique("many");
      await sql`insert into contacts (id, team_id, environment, email, first_name, fields)
        select ${stem} || i, ${tenant.teamId}, 'LIVE', ${stem} || i || '@example.com', 'First', '{"city": "Rome", "orders": 1}'
        from generate_series(1, ${rows}::int) i`.execute(kysely(team.em));
      const numbers = Array.from({ length: 100 }, (_, i) => -i - 1);
      const few = [
        ...Array(SEGMENT_LIMITS.joins).fill({ event: "received", within_days: 10 }),
        ...Array(10).fill({
          field: "created_at",
          op: "in",
          value: numbers.map((days_from_today) => ({ days_from_today })),
        }),
      ];
      const rest = Array(100 - few.length).fill({
        field: "fields.city",
        op: "contains",
        value: "x",
      });
      let largest: Json = { any: [...few, ...rest] };
      for (let depth = 2; depth < SEGMENT_LIMITS.depth; depth++) largest = { all: [largest] };
      const id = await create(largest);
      assert.deepEqual(await countSegment(team.em, tenant, id, PATIENT_COUNT), {
        contacts: 0,
        is_estimate: false,
        sample: [],
      });
      const { contacts, ...estimate } = await countSegment(team.em, tenant, id, { timeoutMs: 1, workMem: "16MB" });
      assert.deepEqual(estimate, { is_estimate: true, sample: [] });
      assert.ok(contacts >= 0 && Number.isInteger(contacts));
    });
  });
});
