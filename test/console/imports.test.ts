import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { recordErased } from "../../domain/erasure/erased-addresses.ts";
import type { ImportKind } from "../../domain/import/stored.ts";
import { orderedWorkflowId } from "../../temporal/ids.ts";
import { clientAs, type consoleClient, refusalCodeOf } from "../support/console.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, tenantOf, unique, uniqueEmail } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { kill } from "../support/processes.ts";
import { prune } from "../support/retention.ts";
import { temporalClient } from "../support/temporal.ts";

const { it, longIt } = testsOf();
type Client = Awaited<ReturnType<typeof consoleClient>>;
const MIB = 1024 * 1024;

/** Uploads a file in parts, as the page does; `left` parts are left out. */
async function upload(client: Client, csv: string, left = 0): Promise<string> {
  const bytes = Buffer.from(csv);
  const { data } = await client.app.imports.begin.mutate({ body: { name: "people.csv", size: bytes.length } });
  const parts = Math.ceil(bytes.length / data.part_bytes) - left;
  for (let n = 0; n < parts; n++) {
    const base64 = bytes.subarray(n * data.part_bytes, (n + 1) * data.part_bytes).toString("base64");
    const part = { params: { importId: data.id }, body: { n, base64 } };
    await client.app.imports.part.mutate(part);
    // A part whose answer was lost comes twice.
    if (n === 0) await client.app.imports.part.mutate(part);
  }
  return data.id;
}

const retrieve = async (client: Client, importId: string) =>
  (await client.app.imports.retrieve.query({ params: { importId } })).data;

/** Waits for the end of a check or an import. */
async function ended(client: Client, importId: string) {
  const hasEnded = async () => !["CHECKING", "RUNNING", "UNDOING"].includes((await retrieve(client, importId)).state);
  await eventually(hasEnded, { what: "the end of the check or import" });
  return retrieve(client, importId);
}

async function check(
  client: Client,
  importId: string,
  kind: ImportKind,
  body: { uses?: string[]; list_id?: string } = {},
) {
  const params = { importId };
  const found = await client.app.imports.columns.query({ params, query: { kind } });
  const uses = body.uses ?? found.data.columns.map(({ use }) => use);
  await client.app.imports.check.mutate({ params, body: { kind, ...body, uses } });
  return ended(client, importId);
}

async function undo(client: Client, importId: string) {
  const press = () => client.app.imports.undo.mutate({ params: { importId } });
  // Of two tabs.
  await Promise.all([press(), press()]);
  return ended(client, importId);
}

async function run(client: Client, importId: string) {
  await client.app.imports.run.mutate({ params: { importId } });
  // A second press changes nothing.
  await client.app.imports.run.mutate({ params: { importId } });
  return ended(client, importId);
}

describe("An import in the console", () => {
  let own: TestTeam;
  let client: Client;
  before(async () => {
    own = await makeTeam();
    client = await clientAs(own, "EDITOR");
  });
  const count = async (table: "subscribers" | "contacts" | "suppressions") => {
    const { rows } = await sql<{ n: number }>`select count(*)::int as n from ${sql.table(table)}
      where team_id = ${own.team.id}`.execute(kysely(own.em.fork()));
    return rows[0]?.n;
  };
  const partsOf = async (id: string) =>
    (await kysely(own.em.fork()).selectFrom("import_parts").select("n").where("import_id", "=", id).execute()).length;

  it("finds the columns, shows by a dry run what would change, and imports", async () => {
    const name = unique("ada");
    const list = (await client.api.lists.create.mutate({ body: { name: "Readers", optin: "SINGLE" } })).data as {
      id: string;
    };
    const csv = `E-Mail;Vorname;Status;Note\n${name}@example.com;'=Ada;subscribed;x\nnobody;N;subscribed;y\n${name}2@example.com;B;unsubscribed;\n`;
    const id = await upload(client, csv);
    const { columns, uses } = (
      await client.app.imports.columns.query({ params: { importId: id }, query: { kind: "subscribers" } })
    ).data;
    assert.deepEqual(
      columns.map(({ use }) => use),
      ["email", "first_name", "consent", "none"],
    );
    assert.deepEqual(columns[0]?.samples, [`${name}@example.com`, "nobody", `${name}2@example.com`]);
    assert.deepEqual(uses, ["email", "first_name", "last_name", "tracking_consent"]);

    const checked = await check(client, id, "subscribers", { list_id: list.id });
    assert.equal(checked.state, "CHECKED", checked.failure ?? "");
    assert.deepEqual(checked.refused, [{ line: 3, address: "nobody", reason: "email is not an email address" }]);
    assert.equal(checked.report?.created, 2);
    assert.equal(checked.report?.list?.added, 1);
    assert.equal(await count("subscribers"), 0, "a dry run leaves no row");

    const done = await run(client, id);
    assert.equal(done.state, "DONE");
    assert.deepEqual(done.report, checked.report);
    assert.equal(await count("subscribers"), 2);
    assert.equal(await partsOf(id), 0, "the file is deleted");
    const first = await kysely(own.em.fork())
      .selectFrom("subscribers")
      .select("first_name")
      .where("team_id", "=", own.team.id)
      .where("email", "=", `${name}@example.com`)
      .executeTakeFirst();
    assert.equal(first?.first_name, "=Ada");
    const listed = (await client.app.imports.list.query({})).data;
    assert.deepEqual([listed[0]?.id, listed[0]?.state, listed[0]?.kind], [id, "DONE", "subscribers"]);
    assert.deepEqual(
      [listed[0]?.list_id, listed[0]?.list_name, listed[0]?.reported_rows, listed[0]?.by],
      [list.id, "Readers", done.report?.rows, "Member"],
    );
    // The history names no person and no file.
    const { client: temporal, close } = await temporalClient();
    const result = await temporal.workflow.getHandle(orderedWorkflowId("import", id)).result();
    await close();
    assert.deepEqual(result, { state: "DONE" });

    const page = (await client.app.imports.export.query({ query: { of: "list", list_id: list.id } })).data;
    const [header, ...lines] = page.csv.split("\r\n");
    const answer = ["at", "way", "words"].map((fact) => `tracking_answer_${fact}`);
    assert.equal(
      header,
      `email,first_name,last_name,tracking_consent,${answer},status,unsubscribed_at,form_sign_up_at,form_words`,
    );
    assert.equal(lines[0], `${name}@example.com,'=Ada,,,,,,subscribed,,,`);
    assert.match(lines[1] ?? "", new RegExp(`^${name}2@example.com,B,,,,,,unsubscribed,\\d{4}-.*Z,,$`));
    assert.equal(page.after, null);
    const ofThoseWhoLeft = { of: "list", list_id: list.id, subscription: "UNSUBSCRIBED" } as const;
    const { data: left } = await client.app.imports.export.query({ query: ofThoseWhoLeft });
    assert.equal(left.csv, [header, lines[1], ""].join("\r\n"));
    const again = await check(client, await upload(client, page.csv), "subscribers", { list_id: list.id });
    assert.equal(again.report?.unchanged, 2, "an import reads an export back");
    assert.deepEqual(again.report?.list, {
      ...done.report?.list,
      added: 0,
      newly_opted_out: 0,
      already_subscribed: 1,
      opted_out: 1,
    });
    await client.app.imports.remove.mutate({ params: { importId: again.id } });
  });

  it("leaves out columns without a name and a text, and rows without a text", async () => {
    const name = unique("ada");
    const wide = ",".repeat(2_000);
    const id = await upload(
      client,
      `${wide}\nemail,,first_name${wide}\n${name}@example.com,,Ada,,\n,,\n${name}2@example.com\n`,
    );
    const { data } = await client.app.imports.columns.query({ params: { importId: id }, query: { kind: "contacts" } });
    assert.deepEqual(
      data.columns.map(({ use }) => use),
      ["email", "none", "first_name"],
    );
    const { report, refused } = await check(client, id, "contacts");
    assert.deepEqual([report?.rows, report?.created, refused, report?.notes.ignored_columns], [2, 2, [], []]);
    await client.app.imports.remove.mutate({ params: { importId: id } });
  });

  it("takes columns that were mapped by hand, and a file that failed once more", async () => {
    const name = unique("ada");
    const id = await upload(client, `a,b\n${name}@example.com,${name}\n`);
    const failed = await check(client, id, "contacts");
    assert.deepEqual([failed.state, failed.failure], ["FAILED", "Choose the column that holds the addresses."]);
    const before = await count("contacts");
    const checked = await check(client, id, "contacts", { uses: ["email", "last_name"] });
    assert.deepEqual([checked.state, checked.report?.created], ["CHECKED", 1]);
    assert.equal((await run(client, id)).state, "DONE");
    assert.equal(await count("contacts"), (before ?? 0) + 1);
    const { csv } = (await client.app.imports.export.query({ query: { of: "contacts" } })).data;
    assert.ok(csv.includes(`${name}@example.com,,${name},,,,\r\n`), csv);

    const undone = await undo(client, id);
    assert.deepEqual(
      [undone.state, undone.undone, undone.undo],
      ["UNDONE", { deleted: 1, removed: 0, contacts: 0, kept: {} }, null],
    );
    assert.equal(await count("contacts"), before);
  });

  it("matches a column to a field in any case, and offers a new one with the name and the type that fit", async () => {
    await declareFields(own, { home_city: "text" });
    const rows = ["a,7,2026-01-31,yes,0049,x", "b,,2026-02-01,no,0050,1", "c,-2.5,,yes,,"];
    const header = "E-Mail,Home City,Größe (cm),Geburts-Tag,VIP?,Plz,Email status";
    const id = await upload(client, `${header}\n${rows.map((row) => `a@example.com,${row}\n`).join("")}`);
    const { data } = await client.app.imports.columns.query({ params: { importId: id }, query: { kind: "contacts" } });
    assert.equal(data.columns[1]?.use, "home_city");
    assert.deepEqual(
      data.columns.slice(2).map(({ field }) => [field.name, field.type]),
      [
        ["grosse_cm", "number"],
        ["geburts_tag", "date"],
        ["vip", "boolean"],
        ["plz", "text"],
        ["email_status_field", "text"],
      ],
    );
    await client.app.imports.remove.mutate({ params: { importId: id } });
  });

  it("makes a field for subscribers in place, matches it in any case, and an undo takes its contacts, with one entry in the log", async () => {
    const rows = ["a,Bonn,yes", "b,Kiel,no", "c,,yes"].map((row) => `${unique("field")}@example.com,${row.slice(2)}\n`);
    const id = await upload(client, `Email,TOWN,Newsletter Consent\n${rows.join("")}`);
    const read = async () =>
      (await client.app.imports.columns.query({ params: { importId: id }, query: { kind: "subscribers" } })).data;
    const usesOf = async () => (await read()).columns.map(({ use }) => use);
    assert.deepEqual(await usesOf(), ["email", "none", "consent"]);
    const { name, type } = (await read()).columns[1]?.field ?? { name: "", type: "text" };
    await client.app.audience.createField.mutate({ body: { name, type } });
    assert.deepEqual(await usesOf(), ["email", "town", "consent"]);
    const list = (await client.api.lists.create.mutate({ body: { name: "Fields", optin: "SINGLE" } })).data;
    const { id: list_id = "" } = JSON.parse(JSON.stringify(list));
    const before = [await count("subscribers"), (await count("contacts")) ?? 0] as const;
    const { report } = await check(client, id, "subscribers", { list_id });
    assert.deepEqual(report?.fields, { contacts_created: 1, contacts_updated: 0, fields_not_stored: 0 });
    const done = await run(client, id);
    assert.deepEqual([done.report, done.undo?.contacts], [report, 1]);
    assert.equal(await count("contacts"), before[1] + 1);
    const undone = await undo(client, id);
    assert.deepEqual(undone.undone, { deleted: 2, removed: 2, contacts: 1, kept: { unsubscribed: 1 } });
    assert.deepEqual([await count("subscribers"), await count("contacts")], [(before[0] ?? 0) + 1, before[1]]);
    const log = (await client.app.audit.page.query({ query: { kind: "imp" } })).data.entries;
    assert.equal(log.filter(({ act, object_id }) => act === "imports.undo" && object_id === id).length, 1);
  });

  it("names the address of a refused line, and none that was erased", async () => {
    const [kept, erased] = [uniqueEmail(), uniqueEmail()];
    await recordErased(own.em.fork(), own.vault, tenantOf(own), erased);
    const rows = [kept, erased].map((email) => `${email},${"x".repeat(500)}\n`);
    const id = await upload(client, `email,first_name\n${rows.join("")}`);
    const { refused } = await check(client, id, "contacts");
    assert.deepEqual(
      refused.map(({ address }) => address),
      [kept, null],
    );
    await client.app.imports.remove.mutate({ params: { importId: id } });
  });

  it("suppresses the addresses of a block list, whose reasons name none", async () => {
    const name = unique("ada");
    const id = await upload(client, `email,status\n${name}@example.com,\n*@example.com,\n`);
    const checked = await check(client, id, "suppressions");
    assert.deepEqual([checked.report?.suppressed, checked.report?.refused], [1, 1]);
    assert.equal(await count("suppressions"), 0);
    await run(client, id);
    assert.equal(await count("suppressions"), 1);
    const { csv } = (await client.app.imports.export.query({ query: { of: "suppressions" } })).data;
    assert.match(csv, new RegExp(`^email,reason,created_at\r\n${name}@example.com,MANUAL,\\d{4}-`));
    const quoting = await upload(client, `email,status\n${unique("a")}@example.com,${name}@example.com\n`);
    const { refused } = await check(client, quoting, "subscribers");
    assert.ok(refused[0]?.reason.includes("…@…"), JSON.stringify(refused));
    await client.app.imports.remove.mutate({ params: { importId: quoting } });
  });

  it("lists an upload that was cut off, for its deletion, and keeps no file for longer than a day", async () => {
    const cut = await upload(client, "x".repeat(MIB + 1), 1);
    assert.equal(await partsOf(cut), 1);
    const checking = { params: { importId: cut }, body: { kind: "contacts" as const, uses: [] } };
    assert.equal(await refusalCodeOf(client.app.imports.check.mutate(checking)), "resource_state_invalid");
    const whole = await upload(client, "email\na@example.com\n");
    const listed = (await client.app.imports.list.query({})).data;
    assert.equal(listed.find(({ id }) => id === cut)?.state, "UPLOADING", "another upload does not end it");
    await client.app.imports.remove.mutate({ params: { importId: cut } });
    assert.equal(await partsOf(cut), 0);
    const expiry = await retrieve(client, whole);
    assert.match(expiry.created_at, /^\d{4}-\d\d-\d\dT.*Z$/);
    const hours = (Date.parse(expiry.expires_at) - Date.parse(expiry.created_at)) / 3_600_000;
    assert.ok(hours > 23 && hours < 25, `${hours}`);
    await sql`update imports set expires_at = now() - interval '1 second' where id = ${whole}`.execute(
      kysely(own.em.fork()),
    );
    await prune();
    assert.equal(await refusalCodeOf(client.app.imports.retrieve.query({ params: { importId: whole } })), "not_found");
    assert.equal(await partsOf(whole), 0);
  });

  it("refuses what is too large, of another length, too many at once, and an import without a check", async () => {
    const begin = (size: number) => client.app.imports.begin.mutate({ body: { name: "a.csv", size } });
    assert.equal(await refusalCodeOf(begin(100 * MIB + 1)), "payload_too_large");
    const { id } = (await begin(2)).data;
    const part = client.app.imports.part.mutate({ params: { importId: id }, body: { n: 0, base64: "YQ==" } });
    assert.equal(await refusalCodeOf(part), "validation_failed");
    await client.app.imports.remove.mutate({ params: { importId: id } });
    const wide = Buffer.from(`${"a,".repeat(1_000)}a\n`);
    const { id: tooWide } = (await begin(wide.length)).data;
    const first = { params: { importId: tooWide }, body: { n: 0, base64: wide.toString("base64") } };
    await assert.rejects(client.app.imports.part.mutate(first), /more than 1,000 columns/);
    await client.app.imports.remove.mutate({ params: { importId: tooWide } });
    const made: string[] = [];
    for (let n = 0; n < 5; n++) made.push(await upload(client, "email\na@example.com\n"));
    assert.equal(await refusalCodeOf(begin(2)), "resource_limit_reached");
    const [whole = ""] = made;
    const early = client.app.imports.run.mutate({ params: { importId: whole } });
    assert.equal(await refusalCodeOf(early), "resource_state_invalid");
    for (const importId of made) await client.app.imports.remove.mutate({ params: { importId } });
    assert.equal(await refusalCodeOf(retrieve(client, whole)), "not_found");
  });

  it("is not carried out by other choices than those of the report that was read", async () => {
    const email = uniqueEmail();
    const importId = await upload(client, `email\n${email}\n`);
    const read = await check(client, importId, "contacts");
    assert.equal(read.report?.created, 1);
    await check(client, importId, "suppressions");
    const press = (updated_at: string) =>
      client.app.imports.run.mutate({ params: { importId } }, { context: { began: `${importId} ${updated_at}` } });
    assert.equal(await refusalCodeOf(press(read.updated_at)), "resource_state_invalid");
    assert.equal((await retrieve(client, importId)).state, "CHECKED");
    await press((await retrieve(client, importId)).updated_at);
    assert.equal((await ended(client, importId)).report?.suppressed, 1);
  });

  longIt("ends as exactly one import when its worker is killed in the middle", async () => {
    const rows = Array.from({ length: 100_000 }, (_, n) => `${unique("p")}${n}@example.com\n`);
    const id = await upload(client, `email\n${rows.join("")}`);
    assert.equal((await check(client, id, "subscribers")).report?.created, rows.length);
    const before = (await count("subscribers")) ?? 0;
    await client.app.imports.run.mutate({ params: { importId: id } });
    await eventually(async () => (await retrieve(client, id)).progress > 0, { what: "progress", everyMs: 50 });
    const { again } = kill("maintenance");
    const done = await ended(client, id);
    assert.deepEqual([done.state, done.report?.created], ["DONE", rows.length]);
    assert.equal(await count("subscribers"), before + rows.length);
    await again;
    await client.app.imports.undo.mutate({ params: { importId: id } });
    await eventually(async () => (await retrieve(client, id)).rows.done > 0, { what: "a step", everyMs: 50 });
    const killed = kill("maintenance");
    const { state, undone, rows: of } = await ended(client, id);
    assert.deepEqual([state, undone?.deleted, of.done], ["UNDONE", rows.length, rows.length]);
    assert.equal(await count("subscribers"), before);
    await killed.again;
  });
});
