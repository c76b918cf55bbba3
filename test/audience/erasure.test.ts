import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { Readable } from "node:stream";
import { sql } from "kysely";
import pino from "pino";
import { appRouter } from "../../api/router.ts";
import { columnsOf } from "../../db/columns.ts";
import type { RecipientState } from "../../db/entities/send.ts";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { claimConfirmations } from "../../domain/audience/confirmation-mails.ts";
import { readSlotUse } from "../../domain/audience/contact-slots.ts";
import { createSubscriber } from "../../domain/audience/subscribers.ts";
import { unsubscribe } from "../../domain/audience/unsubscribes.ts";
import { type ErasureReport, erasePerson } from "../../domain/erasure/erase.ts";
import { readmitAddress } from "../../domain/erasure/erased-addresses.ts";
import { exportPage } from "../../domain/erasure/export.ts";
import { carryOutRequest, orderRequest, readExport } from "../../domain/erasure/requests.ts";
import { newId } from "../../domain/ids.ts";
import { type ImportOptions, importContacts, importSubscribers } from "../../domain/import/import.ts";
import { recordReports } from "../../domain/reports/record.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { recordHits } from "../../domain/tracking/record.ts";
import { fanOut } from "../../domain/webhooks/fan-out.ts";
import { settleAll } from "../public/tracking.ts";
import { type ApiClient, api, codeOf, type Json } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, recordSend, type TestTeam, tenantOf, unique } from "../support/factories.ts";
import { makeDatabase, type OwnDatabase } from "../support/own-database.ts";
import { recountFigures } from "../support/recount.ts";
import { SOFT_BOUNCE_POLICY } from "../support/reports.ts";
import {
  beginToday,
  caughtMails,
  freshKey,
  ledgerStates,
  makeSender,
  type Sender,
  startTomorrow,
  untilStatus,
} from "../support/sending.ts";
import { logOf } from "../support/webhooks.ts";
import { listen } from "../webhooks/outbox.ts";

/** Transactions of the tests show long before an erasure begins. */
const SLACK_MS = 50;

/** A person, with the address as clients spell it and as rows compare it. */
interface Person {
  spelled: string;
  email: string;
  ascii: string;
  firstName: string;
  lastName: string;
  city: string;
}

function makePerson(): Person {
  const id = unique("erased").replace("-", "");
  const domain = `${id}.example`;
  return {
    spelled: `Ada.${id}+News@xn--bcher-kva.${domain}`,
    email: `ada.${id}+news@bücher.${domain}`,
    ascii: `ada.${id}+news@xn--bcher-kva.${domain}`,
    firstName: `First${id}`,
    lastName: `Last${id}`,
    city: `City${id}`,
  };
}

/** Texts to search for: those of `lower` in lower case, and base64 as it is, at each of its three offsets. */
function encodingsOf(text: string): { lower: string[]; exact: string[] } {
  const bytes = Buffer.from(text);
  const quoted = [...bytes].map((byte) =>
    byte === 0x40 || byte > 126 ? `=${byte.toString(16)}` : String.fromCharCode(byte),
  );
  const base64 = [0, 1, 2].map((shift) => {
    const whole = Buffer.concat([Buffer.alloc(shift), bytes]).toString("base64");
    return whole.slice(shift === 0 ? 0 : 4, -4);
  });
  const lower = [
    text,
    encodeURIComponent(text),
    quoted.join(""),
    bytes.toString("hex"),
    JSON.stringify(text).slice(1, -1),
  ];
  return {
    lower: [...new Set(lower.map((each) => each.toLowerCase()))],
    exact: base64.flatMap((each) => [each, each.replaceAll("+", "-").replaceAll("/", "_")]),
  };
}

const textsOf = ({ email, ascii, firstName, lastName, city }: Person) => [
  email,
  ascii,
  // As the limits of confirmation mails count it.
  email.replace("+news", ""),
  firstName,
  lastName,
  city,
];

/** Whether a text holds one of the needles in any case or encoding. */
function holds(text: string, needles: readonly string[]): boolean {
  const lower = text.toLowerCase();
  return needles.some((needle) => {
    const encodings = encodingsOf(needle);
    return encodings.lower.some((each) => lower.includes(each)) || encodings.exact.some((each) => text.includes(each));
  });
}

describe("The erasure of a person", () => {
  let own: OwnDatabase;
  let app: TestApp;
  let vault: Vault;
  let tenant: Tenant;
  let team: TestTeam;
  let client: ApiClient;
  let test: ApiClient;
  const logged: string[] = [];

  before(async () => {
    own = await makeDatabase({ poolMax: 6 });
    const log = pino({ level: "trace" }, { write: (line: string) => void logged.push(line) });
    app = await serveRoutes(appRouter, { changes: { DATABASE_URL: own.url }, with: { log } });
    assert.equal(await app.deps.connectDatabase(), undefined);
    ({ vault } = app.deps);
    team = await makeTeam({ database: { orm: own.orm, vault } });
    tenant = tenantOf(team);
    client = api(team.keys.live, app.base);
    test = api(team.keys.test, app.base);
    await declareFields(team, { city: "text" });
  });
  after(async () => {
    await app.close();
    await own.drop();
  });

  const erase = (person: Person, options: Partial<Parameters<typeof erasePerson>[4]> = {}): Promise<ErasureReport> =>
    erasePerson(team.em, vault, tenant, person.email, { dryRun: false, waitMs: 20_000, slackMs: SLACK_MS, ...options });

  /** `table.column` of every column that holds one of the needles, once the texts of `besides` are taken out. */
  async function columnsHolding(needles: readonly string[], { besides = [] as string[] } = {}): Promise<string[]> {
    const db = kysely(own.orm.em.fork());
    const { rows: tables } = await sql<{ name: string }>`
      select table_name as name from information_schema.tables
      where table_schema = 'public' and table_type = 'BASE TABLE'`.execute(db);
    const found = new Set<string>();
    for (const { name } of tables) {
      const { rows } = await sql<{ row: string }>`select row_to_json(t)::text as row from ${sql.table(name)} t`.execute(
        db,
      );
      for (const { row } of rows) {
        for (const [column, value] of Object.entries(JSON.parse(row) as Record<string, unknown>)) {
          const whole = typeof value === "string" ? value : JSON.stringify(value);
          const text = besides.reduce((rest, other) => rest.replaceAll(other, ""), whole);
          if (holds(text, needles)) found.add(`${name}.${column}`);
        }
      }
    }
    return [...found].sort();
  }

  const countOf = async (table: string): Promise<number> => {
    const { rows } = await sql<{ count: number }>`select count(*)::int as count from ${sql.table(table)}`.execute(
      kysely(own.orm.em.fork()),
    );
    return rows[0]?.count ?? 0;
  };

  const created = async (path: string, body: Json, idempotencyKey = freshKey()): Promise<Json> => {
    const answer = await client.post(path, body, { idempotencyKey });
    assert.ok(answer.status < 300, answer.text);
    return answer.body.data;
  };

  /** Puts the person into every column that may hold one, beside another person. */
  async function plant(person: Person, other: string) {
    const names = { first_name: person.firstName, last_name: person.lastName };
    const body = { email: person.spelled, ...names, fields: { city: person.city } };
    await listen(team);
    const keys = { contact: freshKey(), bulk: freshKey() };
    const contact = await created("/contacts", body, keys.contact);
    const items = [{ ...body, fields: { city: "elsewhere" } }, { email: other }, body];
    await created("/contacts/bulk", { contacts: items }, keys.bulk);
    const subscriber = await created("/subscribers", { email: person.spelled, ...names });
    const bystander = await created("/subscribers", { email: other });
    const lists = [await created("/lists", { name: "One" }), await created("/lists", { name: "Two", optin: "DOUBLE" })];
    for (const { id } of lists) {
      await created(`/lists/${id}/subscribers`, { subscriber_ids: [subscriber.id, bystander.id] });
    }
    await transaction(own.orm.em, (em) => claimConfirmations(em, 50, { perAddress: 50, perTeam: 50 }));

    const newsletter = await created("/newsletters", { name: "Letter" });
    const states: RecipientState[] = [
      "SENT",
      "QUEUED",
      "DEFERRED",
      "SENDING",
      "UNKNOWN",
      "REJECTED",
      "EXPIRED",
      "SENT",
    ];
    const sendId = await recordSend(
      team.em,
      { teamId: team.team.id, environment: "LIVE" },
      newsletter.id,
      states.length,
    );
    const row = { send_id: sendId, member_id: subscriber.id, list_id: lists[0].id };
    const { email, ascii, firstName, lastName, city } = person;
    await kysely(team.em)
      .insertInto("send_recipients")
      .values(
        states.map((state, i) =>
          i === states.length - 1
            ? { ...row, seq: i + 1, state, member_id: bystander.id, email: other }
            : {
                ...row,
                seq: i + 1,
                state,
                email,
                email_spelling: ascii,
                first_name: firstName,
                last_name: lastName,
                fields: { city },
                retry_at: state === "DEFERRED" ? new Date() : null,
                updated_at: new Date(Date.now() - 60_000),
              },
        ),
      )
      .execute();
    const mail = { sendId, seq: 1 };
    const hit = { ...mail, at: Date.now(), rule: null, early: false, source: "source" };
    await recordHits(own.orm.em.fork(), [
      { ...hit, kind: "opened", url: null },
      { ...hit, kind: "clicked", url: "https://example.com/" },
    ]);
    await settleAll(own.orm.em, sendId);
    await recordHits(own.orm.em.fork(), [{ ...hit, kind: "clicked", url: `https://example.com/?to=${ascii}` }]);
    for (const kind of ["bounce:hard", "bounce:soft", "complaint"] as const) {
      await recordReports(team.em, [{ ...mail, kind }], SOFT_BOUNCE_POLICY);
    }
    await recordReports(team.em, [{ sendId, seq: 8, kind: "bounce:soft" }], SOFT_BOUNCE_POLICY);
    await transaction(team.em, (em) => unsubscribe(em, team.vault, mail, "link"));
    await created("/suppressions", { emails: [person.spelled, "manual@example.com"] });

    const refused = [email, other].map((address, at) => ({
      ...{ line: at + 2, address, reason: "first_name is too long", cells: [address, `asked by <${address}>`] },
    }));
    await kysely(team.em)
      .insertInto("imports")
      .values({
        ...{ id: unique("imp"), team_id: team.team.id, environment: "LIVE", member_id: "mbr_1", name: "people.csv" },
        ...{ size: 1, state: "DONE", outcome: JSON.stringify({ refused }), expires_at: new Date(Date.now() + 60_000) },
      })
      .execute();
    while ((await fanOut(own.orm.em.fork(), "")).taken > 0);
    await sql`
      update webhook_deliveries d set status = case n.n % 3 when 0 then 'PENDING' when 1 then 'SUCCEEDED' else 'FAILED' end,
        response_body = case when n.n % 3 > 0 then 'Took ' || ${firstName} end,
        error_message = case when n.n % 3 = 2 then 'refused ' || ${encodeURIComponent(ascii)} end
      from (select d.id, row_number() over (order by d.id) as n from webhook_deliveries d join webhook_events e on e.id = d.event_id
        where strpos(e.object, ${ascii}) > 0) n where d.id = n.id`.execute(kysely(own.orm.em.fork()));
    // The events of these changes stay in the outbox: no relay runs.
    await client.patch(`/contacts/${contact.id}`, {
      fields: { city: `${city}2` },
      tracking_consent: { status: "granted", words: `May we count you, ${firstName}?` },
    });
    await created("/contacts/bulk", {
      contacts: [
        { email: other, first_name: "Other" },
        { email: person.spelled, first_name: `${firstName}2` },
      ],
    });
    const asked = { kind: "EXPORT", email, memberId: "mbr_1" } as const;
    const requestId = await transaction(team.em, (em) => orderRequest(em, vault, tenant, asked));
    await carryOutRequest(team.em, vault, tenant, requestId, new AbortController().signal);
    await recountFigures(team.em, tenant, { repair: true });
    return { requestId, contactBody: body, items, keys, sendId, states, other, subscriberId: subscriber.id };
  }

  it("is stated by every column that holds texts", async () => {
    const { rows } = await sql<{ name: string }>`
      select table_name || '.' || column_name as name from information_schema.columns
      where table_schema = 'public' and table_name not like 'mikro_orm_%' and (data_type in ('text', 'jsonb') or udt_name = '_text')
      order by 1`.execute(kysely(own.orm.em.fork()));
    const stated = columnsOf(own.orm.em).flatMap(({ table, column, personal }) =>
      personal ? [`${table}.${column}`] : [],
    );
    assert.deepEqual(
      stated.sort(),
      rows.map(({ name }) => name).sort(),
      "declare a text by text() or code() of db/entities/shared.ts; add one that may hold a person to the erasure and to this test",
    );
  });

  describe("whose data is in every column", () => {
    const person = makePerson();
    const other = `x${person.email}`;
    let planted: Awaited<ReturnType<typeof plant>>;
    const findPerson = () => columnsHolding(textsOf(person), { besides: [other, other.replace("+news", "")] });

    before(async () => {
      planted = await plant(person, other);
    });

    it("is in an export, but for copies that leave within days", async () => {
      const file = await readExport(team.em, tenant, planted.requestId);
      const whole = JSON.parse(file);
      assert.deepEqual(whole.about.incomplete, []);
      const empty = Object.entries(whole).filter(([, rows]) => Array.isArray(rows) && rows.length === 0);
      assert.deepEqual(
        empty.map(([name]) => name),
        ["subscriptions_of_deleted_lists", "sequences", "unsubscribed_lists"],
      );
      const [contact, mail] = [whole.contact[0], whole.emails[0]];
      assert.deepEqual([contact.email, contact.fields], [person.ascii, { city: `${person.city}2` }]);
      assert.deepEqual([mail.sent_to.first_name, mail.opens, mail.clicks], [person.firstName, 1, 1]);
      assert.deepEqual(whole.rejected_lines_of_files[0].cells, [person.email, `asked by <${person.email}>`]);
      for (const text of [person.firstName, person.lastName, person.city]) assert.ok(exportPage(file).includes(text));
      assert.ok(!file.includes(other));

      const sources = ["erasure/export", "audience/mail-history", "audience/subscription-proofs"].map((name) =>
        readFileSync(`${import.meta.dirname}/../../domain/${name}.ts`, "utf8"),
      );
      const left = columnsOf(own.orm.em).filter(
        ({ table, personal }) => personal === "person" && !sources.some((text) => text.includes(` ${table} `)),
      );
      assert.deepEqual(
        [...new Set(left.map(({ table }) => table))].sort(),
        // Slots, checks and hits of some seconds, and the exports themselves.
        ["audience_addresses", "contact_status_checks", "pending_hits", "person_requests"],
        "add a table with data of people to the export",
      );
    });

    it("is shown first by a dry run, which changes nothing", async () => {
      const held = await findPerson();
      const known = await countOf("erased_addresses");
      const holding = columnsOf(own.orm.em).filter(({ personal }) => personal === "person" || personal === "searched");
      assert.deepEqual(
        held,
        holding.map(({ table, column }) => `${table}.${column}`).sort(),
        "the test holds the person in every column that may hold one",
      );

      const report = await erase(person, { dryRun: true });
      assert.equal(report.wasErased, false);
      const tables = [...new Set(holding.map(({ table }) => table))];
      assert.deepEqual(
        report.rows.map(({ table }) => table).sort(),
        // The slot is freed with the records that hold it.
        [...tables.filter((table) => table !== "audience_addresses"), "subscriptions"].sort(),
      );
      assert.deepEqual(await findPerson(), held);
      assert.equal(await countOf("erased_addresses"), known);
    });

    it("removes the address, the names and the fields from every column, also when it is interrupted", async () => {
      const before = await columnsHolding([other]);
      const events = await countOf("webhook_events");
      const hashes = await countOf("erased_addresses");
      for (const at of ["bounces, opens and unsubscribes", "deliveries of the events"]) {
        const cutOff = erase(person, {
          onStep: (step) => {
            if (step === at) throw new Error("killed");
          },
        });
        await assert.rejects(cutOff, /killed/);
      }
      const last = await erase(person);
      assert.equal(last.wasErased, true);
      assert.deepEqual(await findPerson(), []);
      assert.deepEqual(await columnsHolding([other]), before, "the other person is where they were");
      assert.equal(await countOf("webhook_events"), events);
      assert.equal(await countOf("erased_addresses"), hashes + 1);
      const { used } = await readSlotUse(team.em, tenant);
      assert.equal(used, await countOf("audience_addresses"));
      assert.deepEqual((await erase(person, { dryRun: true })).rows, []);
    });

    it("keeps the ledger's sums and the figures, and lets no row wait to be mailed", async () => {
      const rows = await kysely(team.em)
        .selectFrom("send_recipients")
        .select(["state", "retry_at", "email", "member_id"])
        .where("send_id", "=", planted.sendId)
        .orderBy("seq")
        .execute();
      assert.deepEqual(
        rows.map(({ state }) => state),
        planted.states.map((state) => (state === "QUEUED" || state === "DEFERRED" ? "SUPPRESSED" : state)),
      );
      assert.deepEqual([...new Set(rows.map(({ retry_at }) => retry_at))], [null]);
      const [first, ...others] = new Set(rows.map(({ email }) => email));
      assert.match(first ?? "", /^erased-[0-9a-f]{20}@erased\.invalid$/);
      assert.deepEqual(others, [other]);
      assert.equal(rows[0]?.member_id, planted.subscriberId);
      assert.deepEqual(await recountFigures(team.em, tenant, { repair: false }), []);
    });

    it("keeps the shape of records that wait for delivery, and the ids in the log", async () => {
      const { rows } = await sql<{ type: string; object: Json; status: string; response_body: string | null }>`
        select e.type, e.object::json as object, d.status, d.response_body
        from webhook_deliveries d join webhook_events e on e.id = d.event_id
        where strpos(e.object, '@erased.invalid') > 0`.execute(kysely(own.orm.em.fork()));
      assert.deepEqual([...new Set(rows.map(({ status }) => status))].sort(), ["FAILED", "PENDING", "SUCCEEDED"]);
      assert.deepEqual([...new Set(rows.map((row) => row.response_body))], [null]);
      const contact = rows.find(({ type }) => type === "contact.created")?.object;
      assert.deepEqual([contact.first_name, contact.last_name, contact.fields], [null, null, {}]);
      assert.match(contact.email, /@erased\.invalid$/);
      assert.ok(rows.some(({ object }) => object.id === contact.id && object.created_at === contact.created_at));
      // Answers to what comes back later are not the next person's.
      const { numAffectedRows } = await sql`
        update webhook_deliveries set response_body = 'taken' where status = 'SUCCEEDED' and event_id in (
          select id from webhook_events where strpos(object, '@erased.invalid') > 0)`.execute(
        kysely(own.orm.em.fork()),
      );
      assert.ok(numAffectedRows);
      assert.deepEqual((await erase(makePerson(), { dryRun: true })).rows, []);
      // Neither are they this person's, when the erasure is repeated, nor those of a person whose erasure is resumed.
      const repeated = await erase(person);
      assert.deepEqual([repeated.wasErased, repeated.rows], [true, []]);
      const next = makePerson();
      const cutOff = erase(next, { onStep: (step) => assert.notEqual(step, "deliveries of the events") });
      await assert.rejects(cutOff, /deliveries of the events/);
      assert.deepEqual((await erase(next)).rows, []);
    });

    it("refuses a repeated request with the Idempotency-Key", async () => {
      const { contactBody, items, keys } = planted;
      const contact = await client.post("/contacts", contactBody, { idempotencyKey: keys.contact });
      assert.equal(codeOf(contact), "person_erased", contact.text);
      const bulk = await client.post("/contacts/bulk", { contacts: items }, { idempotencyKey: keys.bulk });
      assert.equal(codeOf(bulk), "person_erased", bulk.text);
    });

    it("refuses the address wherever it enters, in any spelling, and stores it nowhere", async () => {
      const emails = [person.spelled, person.email, person.email.toUpperCase()];
      const known = await created("/subscribers", { email: `${unique("known")}@example.com` });
      const contact = await created("/contacts", { email: known.email });
      for (const email of emails) {
        const keyed = { idempotencyKey: freshKey() };
        for (const answer of [
          await client.post("/subscribers", { email }, keyed),
          await client.post("/contacts", { email, first_name: person.firstName }),
          await client.patch(`/subscribers/${known.id}`, { email }),
          await client.patch(`/contacts/${contact.id}`, { email }),
          await client.post("/contacts", { email }, { query: { dry_run: true } }),
        ]) {
          assert.deepEqual([answer.status, codeOf(answer), answer.body.error.param], [409, "person_erased", "email"]);
        }
        const bulk = await created("/contacts/bulk", {
          contacts: [{ email: known.email }, { email }, { email: "bad" }],
        });
        assert.deepEqual(
          bulk.results.map(({ email: shown, status, error }: Json) => [shown, status, error?.code]),
          [
            [known.email, "unchanged", undefined],
            [null, "failed", "person_erased"],
            ["bad", "failed", "validation_failed"],
          ],
        );
        const key = freshKey();
        const batch = { emails: [email, "manual@example.com"] };
        const suppressed = await created("/suppressions", batch, key);
        assert.deepEqual([suppressed.added, suppressed.already_suppressed.length], [[], 2]);
        assert.deepEqual((await created("/suppressions", batch, key)).already_suppressed, ["manual@example.com"]);
        assert.equal((await client.get(`/suppressions/${encodeURIComponent(email)}`)).status, 404);
      }
      for (const load of [importSubscribers, importContacts]) {
        const refused: [number, string][] = [];
        const options: ImportOptions = { onRefused: (line, reason) => void refused.push([line, reason]) };
        const csv = `email,first_name\n${known.email},A\n${person.spelled},${person.firstName}\n`;
        const loaded = await transaction(team.em, (em) => load(em, vault, tenant, Readable.from([csv]), options));
        assert.deepEqual([loaded.rows, loaded.refused, loaded.created], [2, 1, 0]);
        assert.deepEqual(refused, [[3, "the person with this address asked for their data to be erased"]]);
      }
      assert.deepEqual(await findPerson(), []);
    });

    it("does not affect the other environment, and an operator readmits a person who comes back", async () => {
      const elsewhere = await test.post("/contacts", { email: person.spelled });
      assert.equal(elsewhere.status, 201, elsewhere.text);
      const readmit = () => transaction(team.em, (em) => readmitAddress(em, vault, tenant, person.email));
      assert.deepEqual([await readmit(), await readmit()], [true, false]);
      const back = await client.post("/subscribers", { email: person.spelled });
      assert.equal(back.status, 201, back.text);
    });

    it("writes the person to no line of the log", () => {
      assert.ok(logged.length > 0);
      assert.equal(holds(logged.join(""), textsOf(person)), false);
    });
  });

  it("lists the texts of the team that hold the address, and does not change them", async () => {
    const person = makePerson();
    const list = await created("/lists", { name: "List", description: `Made for ${person.spelled}.` });
    const newsletter = await created("/newsletters", {
      name: `https://example.com/?for=${encodeURIComponent(person.email)}`,
    });
    const contact = await created("/contacts", {
      email: `${unique("friend")}@example.com`,
      fields: { city: `${person.email}!` },
    });
    await created("/lists", { name: "Another", description: `x${person.email}` });
    const written = await created("/newsletters", { name: "Blocks" });
    const version = newId("draftVersion");
    const db = kysely(own.orm.em.fork());
    const blocks = JSON.stringify({ content: [{ text: `Write to ${person.email}.` }] });
    await sql`update newsletters set blocks = ${blocks} where id = ${written.id}`.execute(db);
    await sql`insert into draft_versions (id, team_id, environment, draft_id, preheader, written_at)
      values (${version}, ${team.team.id}, 'LIVE', ${written.id}, ${person.email}, now())`.execute(db);
    const campaign = await created("/campaigns", { name: `${person.email}.csv` });
    await created("/campaigns", { name: `${person.email}.csv.example` });
    const step = newId("stepVersion");
    await sql`insert into sequence_step_versions (id, campaign_id, step_id, wait_minutes, subject, body, blocks)
      values (${step}, ${campaign.id}, 'a', 0, 'x', 'x', ${blocks})`.execute(db);
    const template = newId("template");
    await sql`insert into templates (id, team_id, environment, name, blocks)
      values (${template}, ${team.team.id}, 'LIVE', 'Template', ${blocks})`.execute(db);
    const { rows, mentions } = await erase(person, { dryRun: true });
    assert.deepEqual(rows, [{ table: "idempotency_records", action: "blanked", rows: 4 }]);
    assert.deepEqual(mentions, [
      { table: "campaigns", id: campaign.id },
      { table: "draft_versions", id: version },
      { table: "lists", id: list.id },
      { table: "newsletters", id: newsletter.id },
      { table: "newsletters", id: written.id },
      { table: "sequence_step_versions", id: step },
      { table: "templates", id: template },
      { table: "contacts", id: contact.id },
    ]);
  });

  it("waits for an attempt that is sending an event of the person, and drops the endpoint's answer", async () => {
    const person = makePerson();
    const db = kysely(own.orm.em.fork());
    const webhookId = await listen(team);
    await created("/subscribers", { email: person.spelled });
    while ((await fanOut(own.orm.em.fork(), "")).taken > 0);
    const log = await logOf({ em: own.orm.em.fork() }, webhookId);
    const claimed = log.map(({ id }) => id);
    assert.equal(claimed.length, 1);
    await db.updateTable("webhook_health").set({ claimed }).where("webhook_id", "=", webhookId).execute();

    const erasure = erase(person);
    await eventually(async () => !(await columnsHolding(textsOf(person))).includes("webhook_events.object"), {
      what: "the event without the person",
    });
    await db
      .updateTable("webhook_deliveries")
      .set({ status: "SUCCEEDED", response_body: `Took ${person.ascii}` })
      .where("webhook_id", "=", webhookId)
      .execute();
    await erasure;
    assert.deepEqual(await columnsHolding(textsOf(person)), []);
  });

  it("waits for a create and an import that began before it, and erases their rows", async () => {
    const [created, imported] = [makePerson(), makePerson()];
    const gate = Promise.withResolvers<void>();
    const begun = Promise.withResolvers<void>();
    const create = transaction(team.em, async (em) => {
      await createSubscriber(em, vault, tenant, { email: created.spelled, firstName: null, lastName: null });
      begun.resolve();
      await gate.promise;
    });
    const csv = async function* () {
      yield "email\n";
      await gate.promise;
      yield `${imported.spelled}\n`;
    };
    const refused: number[] = [];
    const load = importContacts(team.em, vault, tenant, Readable.from(csv()), {
      onRefused: (line) => void refused.push(line),
    });
    await begun.promise;
    const known = await countOf("erased_addresses");
    const steps: string[] = [];
    const erasures = [created, imported].map((person) => erase(person, { onStep: (step) => void steps.push(step) }));
    const refusing = async () => (await countOf("erased_addresses")) === known + 2;
    await eventually(refusing, { what: "the hashes of both" });
    const answers = await Promise.all(
      [created, imported].map(({ spelled }) => client.post("/contacts", { email: spelled })),
    );
    assert.deepEqual(answers.map(codeOf), ["person_erased", "person_erased"]);
    assert.ok(!steps.includes("contacts and subscribers"), "no erasure continues while they are open");
    gate.resolve();
    await Promise.all([create, load, ...erasures]);
    assert.deepEqual(refused, [2]);
    assert.deepEqual(await columnsHolding([...textsOf(created), ...textsOf(imported)]), []);
  });
});

describe("A send under way", () => {
  it("never mails a person who was erased before their turn, and ends", async () => {
    const sender = await makeSender({ recipients: 3, credits: 3 });
    const { data } = await startTomorrow(sender);
    const [person = "", ...others] = await recipientsOf(data.id, sender);
    const tenant = { teamId: sender.team.id, environment: "LIVE" } as const;
    const { rows } = await erasePerson(sender.em, sender.vault, tenant, person, {
      dryRun: false,
      slackMs: SLACK_MS,
    });
    assert.deepEqual(
      rows.find(({ table }) => table === "send_recipients"),
      { table: "send_recipients", action: "blanked", rows: 1 },
    );
    await beginToday(sender, data.id);
    await untilStatus(sender, ["SENT"]);
    assert.deepEqual(await ledgerStates(sender), { SENT: 2, SUPPRESSED: 1 });
    const mails = await caughtMails(sender);
    assert.deepEqual(mails.flatMap(({ to }) => to).sort(), others);
  });

  const recipientsOf = async (sendId: string, { em }: Sender): Promise<string[]> => {
    const rows = await kysely(em)
      .selectFrom("send_recipients")
      .select("email")
      .where("send_id", "=", sendId)
      .orderBy("email")
      .execute();
    return rows.map(({ email }) => email);
  };
});

describe("The ledgers of a team", () => {
  it("lose a person from each of many small sends and from each part of a large one, and those of another team do not", async () => {
    const own = await makeDatabase();
    const { email } = makePerson();
    const { vault } = await makeTeam();
    const teams = await Promise.all([1, 2].map(() => makeTeam({ database: { orm: own.orm, vault } })));
    const db = kysely(own.orm.em.fork());
    for (const {
      team: { id },
    } of teams) {
      const ofTeam = sql`${id}, 'LIVE'`;
      await sql`
        with sent as (
          insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients, send_at)
          select ${id} || i, ${ofTeam}, 'newsletter', 'nws_x', 'key_x', 'SENT', 2, now() from generate_series(0, 1010) i returning id
        ), mailed as (
          insert into send_recipients (send_id, seq, member_id, email, state)
          select id, n, 'sub_x', case n % 2 when 0 then ${email} else 'other@example.com' end, 'SENT'
          from sent cross join unnest(array[1, 2] || case id when ${`${id}7`} then array[20000, 20002, 40000, 40001] end) n
          returning send_id, seq, email
        ), reported as (
          insert into mail_reports (send_id, seq, kind, team_id, environment, email)
          select send_id, seq, 'bounce:soft', ${ofTeam}, email from mailed
        )
        insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
        select send_id, seq, 'opened', ${ofTeam}, 'nws_x', email, 1, now(), now() from mailed`.execute(db);
    }
    const [erased, other] = teams.map(tenantOf) as [Tenant, Tenant];
    const { rows } = await erasePerson(own.orm.em, vault, erased, email, { dryRun: false, slackMs: SLACK_MS });
    const found = ["send_recipients", "engagements", "mail_reports"].map((table) => ({
      table,
      action: "blanked",
      rows: 1014,
    }));
    assert.deepEqual(rows, found);
    for (const { table } of found) {
      const ofPerson = sql`select send_id from ${sql.table(table)} where email = ${email}`;
      const left = await sql<{ team: string; rows: number }>`
        select s.team_id as team, count(*)::int as rows from (${ofPerson}) m join sends s on s.id = m.send_id group by 1`.execute(
        db,
      );
      assert.deepEqual(left.rows, [{ team: other.teamId, rows: 1014 }]);
    }
    await own.drop();
  });
});
