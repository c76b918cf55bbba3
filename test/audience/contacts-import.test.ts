import assert from "node:assert/strict";
import { mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Readable } from "node:stream";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { suggestField } from "../../domain/audience/contact-fields.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import type { ColumnOptions } from "../../domain/import/file.ts";
import { type ImportReport, importContacts } from "../../domain/import/import.ts";
import { type ApiClient, api, type Json } from "../support/api.ts";
import { refused as refusedCommand, run as runCommand } from "../support/command.ts";
import { declareFields, makeTeamWithFields } from "../support/contacts.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { snapshotTables } from "../support/tables.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

const FIELDS = { city: "text", favourite_number: "number", vip: "boolean", member_since: "date" } as const;

const EXACT =
  "must be a number from -9007199254740991 to 9007199254740991; use a text field for one that must be kept exactly";

interface Imported extends ImportReport {
  lines: [number, string][];
}

describe("CSV import of contacts", () => {
  let team: TestTeam;
  let tenant: Tenant;
  let client: ApiClient;
  beforeEach(async () => {
    ({ team, tenant, client } = await makeTeamWithFields(FIELDS));
  });

  async function load(...csv: string[]): Promise<Imported> {
    return loadWith({}, ...csv);
  }
  async function loadWith(options: ColumnOptions, ...csv: string[]): Promise<Imported> {
    const lines: [number, string][] = [];
    const report = await importContacts(team.em, team.vault, tenant, Readable.from([Buffer.from(csv.join("\n"))]), {
      onRefused: (line, reason) => void lines.push([line, reason]),
      ...options,
    });
    return { ...report, lines };
  }
  const all = async (): Promise<Json[]> =>
    (await client.get("/contacts", { query: { limit: 100 } })).body.data.toSorted((a: Json, b: Json) =>
      a.email.localeCompare(b.email),
    );

  it("reads the columns of custom fields in any spelling, and each value as its type", async () => {
    const { created, notes, refused } = await load(
      "Email,CITY,Favourite Number,vip,member-since,shoe size",
      "a@example.com,Köln,-1.5e3,YES,2024-02-29,44",
      "b@example.com,,7,0,,",
    );
    assert.deepEqual([created, refused, notes.ignoredColumns], [2, 0, ["shoe size"]]);
    assert.deepEqual(
      (await all()).map(({ fields }) => fields),
      [
        { city: "Köln", favourite_number: -1500, vip: true, member_since: "2024-02-29" },
        { favourite_number: 7, vip: false },
      ],
    );
  });

  it("names each line with a value that its field cannot take, and imports the others", async () => {
    const { lines, created } = await load(
      "email,city,favourite_number,vip,member_since",
      `a@example.com,${"x".repeat(501)},,,`,
      "b@example.com,,seven,,",
      "c@example.com,,Infinity,,",
      "d@example.com,,,perhaps,2025-02-29",
      "e@example.com,Rom,1,no,2025-02-28",
      "f@example.com,,9007199254740992,,",
      "g@example.com,,-20230302175510297,,",
      "h@example.com,,1e400,,",
      "i@example.com,,-0.01E-400,,",
      "j@example.com,,0e-400,,",
      "k@example.com,,-9007199254740991,,",
      "l@example.com,,0.1234567890123456789,,",
    );
    const exact = `favourite_number ${EXACT}`;
    assert.deepEqual(lines, [
      [2, "city must be a text of one line and at most 500 characters"],
      [3, "favourite_number must be a number"],
      [4, "favourite_number must be a number"],
      [5, "vip must be true or false; member_since must be a date, such as 2026-01-31"],
      ...[7, 8, 9, 10].map((line) => [line, exact]),
    ]);
    assert.equal(created, 4);
    const kept = (await all()).slice(1).map(({ fields }) => fields.favourite_number);
    assert.deepEqual(kept, [0, -9007199254740991, 0.12345678901234568]);
  });

  it("updates known contacts; an empty value keeps the known one, and the same file again changes nothing", async () => {
    const { body } = await client.post("/contacts", {
      email: "a@example.com",
      first_name: "A",
      fields: { city: "Rom", favourite_number: 1 },
    });
    const file = ["email,first_name,city,vip", "a@example.com,,Bonn,true", "b@example.com,B,,"];
    const first = await load(...file);
    assert.deepEqual([first.created, first.updated, first.unchanged], [1, 1, 0]);
    const [one, two] = await all();
    assert.deepEqual(
      [one.id, one.first_name, one.fields],
      [body.data.id, "A", { city: "Bonn", favourite_number: 1, vip: true }],
    );
    assert.deepEqual([two.first_name, two.fields], ["B", {}]);
    const before = await snapshotTables(team.em, team.team.id);
    const again = await load(...file);
    assert.deepEqual([again.created, again.updated, again.unchanged], [0, 0, 2]);
    assert.deepEqual(await snapshotTables(team.em, team.team.id), before);
  });

  it("keeps the status of bounced addresses, and reports what it made and changed", async () => {
    const bounced = uniqueEmail();
    await transaction(team.em, (em) => suppress(em, tenant, [bounced], "bounce:hard"));
    await listen(team);
    const since = emitted(team);
    const file = (city: string) => ["email,city", `${bounced},${city}`, "z@example.com,Rom"];
    await load(...file("Rom"));
    const [contact, other] = await all();
    assert.deepEqual([contact.email_status, other.email_status], ["INVALID", "ACTIVE"]);
    const created = await since();
    assert.deepEqual(
      created.toSorted((a, b) => a.object.email.localeCompare(b.object.email)),
      [contact, other].map((object) => ({ type: "contact.created", object })),
    );
    await load(...file("Bonn"));
    assert.deepEqual(await since(), [{ type: "contact.updated", object: (await all())[0] }]);
  });

  it("refuses a file that names a custom field twice", () =>
    assert.rejects(load("email,city,City", "a@example.com,Rom,Bonn"), /names the column city twice/));

  it("asks whether a custom field with a usual name of consent states it", async () => {
    // Of a release that reserved no such name.
    const old = { team_id: team.team.id, environment: "LIVE" as const, name: "status", type: "text" as const };
    await kysely(team.em).insertInto("contact_fields").values(old).execute();
    const file = ["email,status", "a@example.com,unsubscribed"];
    await assert.rejects(load(...file), /in "status"\. Say --ignore-column NAME .* --status-column NAME/);
    assert.equal((await loadWith({ ignoreColumns: ["status"] }, ...file)).suppressed, 0);
    assert.deepEqual((await all())[0].fields, { status: "unsubscribed" });
    assert.equal((await loadWith({ statusColumns: ["status"] }, ...file)).suppressed, 1);
  });

  it("does not deadlock with bulk calls on the same contacts", async () => {
    const emails = Array.from({ length: 300 }, (_, i) => `p${i}@example.com`);
    const shuffled = () => emails.toSorted(() => Math.random() - 0.5);
    const rows = (name: string) => shuffled().map((email) => `${email},${name}`);
    await load("email,first_name", ...rows("A"));
    const bulk = (name: string) =>
      client.post(
        "/contacts/bulk",
        { contacts: shuffled().map((email) => ({ email, first_name: name })) },
        { idempotencyKey: unique("bulk") },
      );
    const [imports, calls] = await Promise.all([
      Promise.all(["B", "C", "D"].map((name) => load("email,first_name", ...rows(name)))),
      Promise.all(["E", "F", "G", "H"].map(bulk)),
    ]);
    for (const { updated, unchanged } of imports) assert.equal(updated + unchanged, emails.length);
    for (const { status, text } of calls) assert.equal(status, 200, text);
  });
});

describe("The commands of custom fields", () => {
  // Each command is a process of its own.
  let team: TestTeam;
  let folder: string;
  before(async () => {
    team = await makeTeam();
    folder = await mkdtemp(join(tmpdir(), "mailkeel-contacts-"));
  });
  after(() => rm(folder, { recursive: true }));

  const run = (...args: string[]) => runCommand(...args, "--team", team.team.id);
  const refused = (why: RegExp, ...args: string[]) => refusedCommand(why, ...args, "--team", team.team.id);

  it("declare fields, list them, fill them by an import, and delete them with their values", async () => {
    assert.deepEqual((await run("field:list")).fields, []);
    assert.deepEqual(await run("field:create", "city", "--type", "text"), { field: { name: "city", type: "text" } });
    await run("field:create", "orders", "--type", "number");
    await run("field:create", "city", "--type", "date", "--environment", "test");
    const fields = [
      { name: "city", type: "text" },
      { name: "orders", type: "number" },
    ];
    assert.deepEqual((await run("field:list")).fields, fields);

    await refused(/There is a field city/, "field:create", "city", "--type", "number");
    for (const name of ["City", "email"]) await refused(/lower-case letters/, "field:create", name, "--type", "text");
    const others = [
      "1st",
      "a-b",
      "x".repeat(64),
      "none",
      "ignored",
      "consent",
      "tracking_consent",
      "status",
      "opt_out",
    ];
    for (const name of others) {
      await assert.rejects(declareFields(team, { [name]: "text" }), { code: "validation_failed" }, name);
      assert.notEqual(suggestField(name, []).name, name);
    }
    await declareFields(team, { state: "text" }, "TEST");
    await refused(/one of: text, number, boolean, date/, "field:create", "day", "--type", "day");
    await refused(/no field town/, "field:delete", "town");

    const [file, report] = [join(folder, "people.csv"), join(folder, "refused.csv")];
    await writeFile(file, "email,city,orders\na@example.com,Rom,1\nb@example.com,Bonn,many\nc@example.com,,2\n");
    const imported = await run("import", "--contacts", file, "--report", report);
    assert.deepEqual([imported.rows, imported.created, imported.refused], [3, 2, 1]);
    assert.equal(await readFile(report, "utf8"), "line,reason\r\n3,orders must be a number\r\n");
    await refused(/cannot be used with option '--list/, "import", "--contacts", file, "--list", "list_x");

    const client = api(team.keys.live);
    await listen(team);
    const since = emitted(team);
    assert.equal((await run("field:delete", "orders")).contacts, 2);
    const { body } = await client.get("/contacts", { query: { sort: "created_at", order: "asc" } });
    assert.deepEqual(
      body.data.map((contact: Json) => contact.fields),
      [{ city: "Rom" }, {}],
    );
    assert.deepEqual(
      (await since()).map(({ type, object }) => [type, object.fields]),
      [
        ["contact.updated", { city: "Rom" }],
        ["contact.updated", {}],
      ],
    );
    const answer = await client.post("/contacts", { email: uniqueEmail(), fields: { orders: 1 } });
    assert.equal(answer.body.error.param, "fields.orders");
    // As another type: no value of the old one is left.
    await run("field:create", "orders", "--type", "text");
    assert.equal((await client.post("/contacts", { email: uniqueEmail(), fields: { orders: "1" } })).status, 201);
  });

  it("finish a deletion that was cut off, and take no value meanwhile", async () => {
    await declareFields(team, { halfway: "text" });
    const client = api(team.keys.live);
    const { body } = await client.post("/contacts", { email: uniqueEmail(), fields: { halfway: "x" } });
    await team.em
      .fork()
      .execute("update contact_fields set deleted_at = now() where name = 'halfway' and team_id = ?", [team.team.id]);
    const late = await client.patch(`/contacts/${body.data.id}`, { fields: { halfway: "y" } });
    assert.equal(late.body.error.param, "fields.halfway");
    await refused(/is being deleted/, "field:create", "halfway", "--type", "date");
    assert.equal((await run("field:delete", "halfway")).contacts, 1);
    assert.deepEqual((await client.get(`/contacts/${body.data.id}`)).body.data.fields, {});
    await run("field:create", "halfway", "--type", "date");
  });

  it("refuse a field beyond the 50 that a team may have", async () => {
    const other = await makeTeam();
    await declareFields(other, Object.fromEntries(Array.from({ length: 50 }, (_, i) => [`field_${i}`, "text"])));
    await assert.rejects(declareFields(other, { one_more: "text" }), { code: "resource_limit_reached" });
    await declareFields(other, { elsewhere: "text" }, "TEST");
  });

  it("import a block list, and people with a column of consent", async () => {
    const client = api(team.keys.live);
    const [file, report] = [join(folder, "blocked.csv"), join(folder, "refused.csv")];
    const people =
      "sep=;\r\nE-Mail-Adresse;Vorname;Status\r\nd@example.com;J\xFCrgen;Bounced\r\ne@example.com;;unsubscribed\r\n";
    await writeFile(file, people, "latin1");
    const stated = await run("import", "--contacts", file);
    assert.deepEqual([stated.created, stated.suppressed, stated.status_columns], [2, 2, ["Status"]]);
    assert.equal(stated.windows_1252_lines, 1);
    const blocked = [
      "email,reason,status,Subscribed,name",
      "d@example.com,,,,",
      "\u200Bf@example.com,spam complaint,subscribed,,",
      "g,,,,",
      "h@example.com,550,,2024-01-02,x",
      "i@example.com,asked by phone,subscribed,,",
      "*@example.com,,,,",
    ];
    await writeFile(file, blocked.join("\n"));
    const { seconds, ...block } = await run("import", "--suppressions", file, "--report", report);
    assert.deepEqual(block, {
      rows: 6,
      refused: 3,
      suppressed: 2,
      already_suppressed: 1,
      status_columns: ["reason", "status", "Subscribed"],
      ignored_columns: ["name"],
      windows_1252_lines: 0,
    });
    assert.match(await readFile(report, "utf8"), /6,the row says .*\r\n7,"email is a pattern/s);
    const suppressions = (await client.get("/suppressions", { query: { order: "asc", sort: "created_at" } })).body.data;
    assert.deepEqual(suppressions.map((row: Json) => [row.email, row.reason]).toSorted(), [
      ["d@example.com", "bounce:hard"],
      ["e@example.com", "UNSUBSCRIBED"],
      ["f@example.com", "bounce:complaint"],
      ["h@example.com", "MANUAL"],
    ]);
    const [contact] = (await client.get("/contacts", { query: { email: "d@example.com" } })).body.data;
    assert.deepEqual([contact.first_name, contact.email_status], ["Jürgen", "INVALID"]);
    await refused(/cannot be used with option '--list/, "import", "--suppressions", file, "--list", "list_x");
  });
});
