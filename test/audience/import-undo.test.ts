import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import { STEP_ROWS } from "../../domain/import/import.ts";
import {
  carryOutImport,
  failImport,
  orderCheck,
  orderImport,
  orderUndo,
  readImport,
  refusedFile,
  type StoredOptions,
} from "../../domain/import/stored.ts";
import { api } from "../support/api.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, recordSend, type TestTeam, tenantOf } from "../support/factories.ts";
import { holdSubscriber, storeImport } from "../support/imports.ts";
import { emitted, listen } from "../webhooks/outbox.ts";

const running = new AbortController().signal;
const emailOf = (n: number) => `p${String(n).padStart(5, "0")}@example.com`;
const csvOf = (people: number) => `email\n${Array.from({ length: people }, (_, n) => `${emailOf(n)}\n`).join("")}`;
const STAGE = ["email", "none", "consent"];

describe("An import that is undone", () => {
  let own: TestTeam;
  let tenant: Tenant;
  let client: ReturnType<typeof api>;
  beforeEach(async () => {
    own = await makeTeam();
    tenant = tenantOf(own);
    client = api(own.keys.live);
  });

  const carryOut = (id: string, stopping = running) => carryOutImport(own.em, own.vault, tenant, id, stopping);
  const read = (id: string) => readImport(own.em, tenant, id);
  const written = async (id: string) => (await read(id)).outcome?.place?.people ?? 0;
  const undo = (id: string) => transaction(own.em, (em) => orderUndo(em, tenant, id));
  const listOf = async (optin = "SINGLE"): Promise<string> =>
    (await client.post("/lists", { name: "Readers", optin })).body.data.id;
  async function load(csv: string, options: Partial<StoredOptions> = {}) {
    const id = await storeImport(own, csv, { kind: "subscribers", uses: STAGE, ...options });
    assert.equal(await carryOut(id), "CHECKED", (await read(id)).outcome?.failure);
    await orderImport(own.em, tenant, id, undefined, "ask");
    assert.equal(await carryOut(id), "DONE");
    return id;
  }
  const emails = async (table: "subscribers" | "contacts" = "subscribers") => {
    const rows = kysely(own.em).selectFrom(table).select("email").where("team_id", "=", tenant.teamId);
    return (await rows.orderBy("email").execute()).map(({ email }) => email);
  };
  const idOf = async (email: string): Promise<string> =>
    (await client.get("/subscribers", { query: { email } })).body.data[0].id;
  const slots = async () =>
    (
      await sql<{ used: number; addresses: number }>`
        select (select used from contact_slot_counts where team_id = ${tenant.teamId} and environment = 'LIVE') as used,
          (select count(*)::int from audience_addresses where team_id = ${tenant.teamId}) as addresses`.execute(
        kysely(own.em),
      )
    ).rows[0];
  const write = (statement: string, ...values: unknown[]) => own.em.fork().execute(statement, values);
  /** A send to people with these ids. */
  async function mail(...ids: string[]) {
    const sendId = await recordSend(own.em, tenant, "nl_x", ids.length);
    for (const [at, id] of ids.entries()) {
      const row = [sendId, at + 1, id, `${at}@mail.example`, at === 0 ? "SENT" : "CANCELLED"];
      await write("insert into send_recipients (send_id, seq, member_id, email, state) values (?, ?, ?, ?, ?)", ...row);
    }
  }

  it("takes back what it made, and says how many stay and why", async () => {
    const [listId, other] = [await listOf(), await listOf()];
    await client.post("/subscribers", { email: "known@example.com", first_name: "Known" });
    const names = ["made", "changed", "left", "mailed", "cancelled", "elsewhere", "known", "gone"];
    const csv = `email,,status\n${names.map((name) => `${name}@example.com,,subscribed\n`).join("")}`;
    const file = `${csv}out@example.com,,unsubscribed\nspam@example.com,,spam\nno address,,subscribed\n`;
    const id = await load(file, { listId });
    const { undo: possible, createdAt } = await read(id);
    assert.equal(Math.round((Date.parse(possible?.until ?? "") - Date.parse(createdAt)) / 86_400_000), 7);
    assert.deepEqual([possible?.people, possible?.subscriptions], [9, 8]);

    await client.patch(`/subscribers/${await idOf("changed@example.com")}`, { first_name: "New" });
    await client.patch(`/lists/${listId}/subscribers/${await idOf("left@example.com")}`, { status: "UNSUBSCRIBED" });
    await mail(await idOf("mailed@example.com"), await idOf("cancelled@example.com"));
    await client.post(`/lists/${other}/subscribers`, { subscriber_ids: [await idOf("elsewhere@example.com")] });
    await client.delete(`/subscribers/${await idOf("gone@example.com")}`);

    await listen(own);
    const since = emitted(own);
    await undo(id);
    // Of two presses one is an order.
    await undo(id);
    assert.equal(await carryOut(id), "UNDONE");
    await undo(id);
    const { outcome, state, undo: over, rows } = await read(id);
    assert.deepEqual([state, over, rows], ["UNDONE", null, { done: 17, total: 17 }]);
    assert.deepEqual(outcome?.undone, {
      ...{ deleted: 3, removed: 5, contacts: 0 },
      kept: { changed: 1, unsubscribed: 2, emailed: 1, on_another_list: 1 },
    });
    const events = Map.groupBy(await since(), ({ type }) => type);
    assert.deepEqual(
      [...events].map(([type, of]) => [type, of.length]),
      [
        ["subscription.removed", 5],
        ["subscriber.deleted", 3],
      ],
    );
    const left = ["changed", "elsewhere", "known", "left", "mailed", "out"].map((name) => `${name}@example.com`);
    assert.deepEqual(await emails(), left);
    assert.deepEqual(await slots(), { used: 6, addresses: 6 });
    const { body } = await client.get("/suppressions");
    assert.deepEqual([body.data.length, body.data[0].email], [1, "spam@example.com"]);
    assert.deepEqual((await client.get(`/subscribers/${await idOf("known@example.com")}`)).body.data.subscriptions, []);

    const again = await load(file, { listId });
    const { report } = (await read(again)).outcome as { report: { created: number; list: { added: number } } };
    assert.deepEqual([report.created, report.list.added], [4, 6]);
  });

  it("keeps people who were asked for a confirmation, not those whose mail was kept back", async () => {
    const listId = await listOf("DOUBLE");
    const options = { listId, uses: ["email"] };
    const id = await load("email\nasked@example.com\nlimit@example.com\ntaken@example.com\n", options);
    // A worker may have mailed them by now.
    const set = async (name: string, columns: string) =>
      write(`update subscriptions set ${columns} where subscriber_id = ?`, await idOf(`${name}@example.com`));
    const later = "confirmation_due_at = now() + interval '1 day', confirmation_sent_at = null";
    await set("asked", "confirmation_due_at = null, confirmation_sent_at = now()");
    await set("limit", `${later}, confirmation_withheld = 'team_limit'`);
    await set("taken", `${later}, confirmation_withheld = null`);
    await undo(id);
    await carryOut(id);
    assert.deepEqual((await read(id)).outcome?.undone, { deleted: 1, removed: 1, contacts: 0, kept: { emailed: 2 } });
    assert.deepEqual(await emails(), ["asked@example.com", "taken@example.com"]);
  });

  it("keeps people whose subscriptions wait in the bin with their list", async () => {
    await client.post("/subscribers", { email: "known@example.com" });
    const listId = await listOf();
    const id = await load(`${csvOf(1)}known@example.com\n`, { listId });
    await client.patch(`/lists/${listId}/subscribers/${await idOf(emailOf(0))}`, { status: "UNSUBSCRIBED" });
    await client.delete(`/lists/${listId}`);
    await undo(id);
    assert.equal(await carryOut(id), "UNDONE");
    assert.deepEqual((await read(id)).outcome?.undone, {
      deleted: 0,
      removed: 0,
      contacts: 0,
      kept: { on_another_list: 2 },
    });
    assert.deepEqual(await emails(), ["known@example.com", emailOf(0)]);
  });

  it("takes contacts back, unless they were changed or mailed", async () => {
    await client.post("/contacts", { email: "known@example.com" });
    const csv = "email\nmade@example.com\nchanged@example.com\nmailed@example.com\nknown@example.com\n";
    const id = await load(csv, { kind: "contacts", uses: ["email"] });
    const [changed, mailed] = await Promise.all(
      ["changed", "mailed"].map(
        async (name) => (await client.get("/contacts", { query: { email: `${name}@example.com` } })).body.data[0].id,
      ),
    );
    await client.patch(`/contacts/${changed}`, { first_name: "New" });
    await mail(mailed);
    await undo(id);
    await carryOut(id);
    const { undone } = (await read(id)).outcome ?? {};
    assert.deepEqual(undone, { deleted: 1, removed: 0, contacts: 0, kept: { changed: 1, emailed: 1 } });
    assert.deepEqual(await emails("contacts"), ["changed@example.com", "known@example.com", "mailed@example.com"]);
    assert.deepEqual(await slots(), { used: 3, addresses: 3 });
  });

  it("takes back the contacts that hold the fields of its people, each with its person", async () => {
    await declareFields(own, { city: "text" });
    await client.post("/subscribers", { email: "known@example.com" });
    await client.post("/contacts", { email: "held@example.com", fields: { city: "Rome" } });
    const listId = await listOf();
    const names = ["made", "mailed", "changed", "campaign", "left", "known", "held"];
    const csv = `email,city\n${names.map((name) => `${name}@example.com,Bonn\n`).join("")}plain@example.com,\n`;
    const id = await load(csv, { listId, uses: ["email", "city"] });
    const { undo: possible } = await read(id);
    assert.deepEqual([possible?.people, possible?.subscriptions, possible?.contacts], [7, 8, 6]);
    assert.deepEqual(await slots(), { used: 8, addresses: 8 });
    const contact = async (name: string) =>
      (await client.get("/contacts", { query: { email: `${name}@example.com` } })).body.data[0].id;
    await client.patch(`/contacts/${await contact("changed")}`, { fields: { city: "Kiel" } });
    await client.patch(`/lists/${listId}/subscribers/${await idOf("left@example.com")}`, { status: "UNSUBSCRIBED" });
    await mail(await idOf("mailed@example.com"));
    await mail(await contact("campaign"));

    await undo(id);
    assert.equal(await carryOut(id), "UNDONE");
    const { outcome, rows } = await read(id);
    const kept = { emailed: 2, changed: 1, unsubscribed: 1 };
    assert.deepEqual([outcome?.undone, rows.done], [{ deleted: 3, removed: 5, contacts: 2, kept }, 21]);
    const stay = ["campaign", "changed", "left", "mailed"].map((name) => `${name}@example.com`);
    assert.deepEqual(await emails(), [...stay, "known@example.com"].toSorted());
    assert.deepEqual(await emails("contacts"), [...stay, "held@example.com"].toSorted());
    assert.deepEqual(await slots(), { used: 6, addresses: 6 });
  });

  it("keeps a contact whose subscriber was renamed, made anew, or mailed although they were on the list before", async () => {
    await declareFields(own, { city: "text" });
    const listId = await listOf();
    for (const name of ["known", "mailed"]) {
      const { id } = (await client.post("/subscribers", { email: `${name}@example.com` })).body.data;
      await client.post(`/lists/${listId}/subscribers`, { subscriber_ids: [id] });
    }
    const names = ["renamed", "anew", "known", "mailed", "made"];
    const csv = `email,city\n${names.map((name) => `${name}@example.com,Bonn\n`).join("")}`;
    const id = await load(csv, { listId, uses: ["email", "city"] });
    await client.patch(`/subscribers/${await idOf("renamed@example.com")}`, { email: "other@example.com" });
    await client.delete(`/subscribers/${await idOf("anew@example.com")}`);
    await client.post("/subscribers", { email: "anew@example.com" });
    await mail(await idOf("mailed@example.com"));
    await write(
      "update send_recipients set email = 'mailed@example.com' where member_id = ?",
      await idOf("mailed@example.com"),
    );
    await undo(id);
    assert.equal(await carryOut(id), "UNDONE");
    const stay = ["anew", "mailed", "renamed"].map((name) => `${name}@example.com`);
    assert.deepEqual(await emails("contacts"), stay);
    assert.deepEqual((await read(id)).outcome?.undone?.kept, { changed: 3, emailed: 1 });
  });

  it("is refused after seven days, without rows that it made, and while it is carried out", async () => {
    const id = await load("email\na@example.com\n", { uses: ["email"] });
    // The column rounds to milliseconds: now() may be later than it was.
    await write("update imports set undoable_until = now() - interval '1 millisecond' where id = ?", id);
    await assert.rejects(undo(id), { code: "resource_state_invalid" });
    const none = await load("email\nb@example.com\n", { kind: "suppressions", uses: ["email"] });
    await assert.rejects(undo(none), { code: "resource_state_invalid" });
    const waiting = await storeImport(own, "email\nc@example.com\n", { kind: "contacts", uses: ["email"] });
    await assert.rejects(undo(waiting), { code: "resource_state_invalid" });
    assert.deepEqual(await emails(), ["a@example.com"]);
  });

  describe("of three steps", () => {
    let id: string;
    beforeEach(async () => {
      id = await load(csvOf(3 * STEP_ROWS), { listId: await listOf(), uses: ["email"] });
      await undo(id);
    });
    const deleted = async () => (await read(id)).outcome?.undone?.deleted;
    const whole = { deleted: 3 * STEP_ROWS, removed: 3 * STEP_ROWS, contacts: 0, kept: {} };

    /** The second step waits for a row. */
    async function stall(stopping = running) {
      const { release } = await holdSubscriber(own, emailOf(STEP_ROWS + 1_000));
      const ended = carryOut(id, stopping);
      ended.catch(() => undefined);
      await eventually(async () => (await deleted()) === STEP_ROWS, { what: "a step" });
      return { ended, release };
    }

    it("continues behind the last step after it was cut off, shows how far it is, and takes each row back once", async () => {
      const stopping = new AbortController();
      const { ended, release } = await stall(stopping.signal);
      const { state, progress, rows } = await read(id);
      assert.deepEqual([state, progress, rows], ["UNDOING", 33, { done: 2 * STEP_ROWS, total: 6 * STEP_ROWS }]);
      stopping.abort();
      await release();
      await assert.rejects(ended, { name: "AbortError" });
      assert.equal((await read(id)).state, "UNDOING");
      assert.deepEqual(await Promise.all([carryOut(id), carryOut(id)]), ["UNDONE", "UNDONE"]);
      assert.deepEqual((await read(id)).outcome?.undone, whole);
      assert.deepEqual([await emails(), await slots()], [[], { used: 0, addresses: 0 }]);
    });

    it("says that it is half done when it fails, takes the rest back when it is ordered again, and leaves erasures whole", async () => {
      const stalled = await stall();
      await failImport(own.em, tenant, id, "The service failed.");
      await stalled.release();
      assert.equal(await stalled.ended, "UNDO_FAILED");
      const { outcome } = await read(id);
      assert.match(outcome?.failure ?? "", /What is not undone yet stays; undo the import again/);
      assert.equal(outcome?.undone?.deleted, STEP_ROWS);

      await undo(id);
      const { ended, release } = await stall();
      // One of the step that is done, one of the step that waits, and one of the last step.
      const erasures = [10, STEP_ROWS + 10, 2 * STEP_ROWS + 10].map((n) =>
        erasePerson(own.em, own.vault, tenant, emailOf(n), { dryRun: false, slackMs: 0 }),
      );
      await release();
      assert.equal(await ended, "UNDONE");
      await Promise.all(erasures);
      assert.deepEqual([await emails(), await slots()], [[], { used: 0, addresses: 0 }]);
      const { undone, failure } = (await read(id)).outcome ?? {};
      const gone = whole.deleted - (undone?.deleted ?? 0);
      assert.ok(gone >= 0 && gone <= 2, `${gone}`);
      assert.deepEqual([undone?.kept, failure], [{}, undefined]);
    });
  });

  it("that failed in the middle can be undone with its file", async () => {
    await client.post("/subscribers", { email: emailOf(STEP_ROWS + 10) });
    const id = await storeImport(own, csvOf(2 * STEP_ROWS), { kind: "subscribers", uses: ["email"] });
    await carryOut(id);
    await orderImport(own.em, tenant, id);
    const { release } = await holdSubscriber(own, emailOf(STEP_ROWS + 10));
    const ended = carryOut(id);
    await eventually(async () => (await written(id)) === STEP_ROWS, { what: "a step" });
    await failImport(own.em, tenant, id, "An operator has ended it.");
    await release();
    assert.equal(await ended, "FAILED");
    await undo(id);
    assert.equal(await carryOut(id), "UNDONE");
    assert.deepEqual(await emails(), [emailOf(STEP_ROWS + 10)]);
    await assert.rejects(orderCheck(own.em, tenant, id, { kind: "contacts", uses: ["email"] }), /imported already/);
  });
});

describe("A check of an import", () => {
  let own: TestTeam;
  let tenant: Tenant;
  beforeEach(async () => {
    own = await makeTeam();
    tenant = tenantOf(own);
  });
  const carryOut = (id: string) => carryOutImport(own.em, own.vault, tenant, id, running);
  const read = (id: string) => readImport(own.em, tenant, id);
  const listIn = async (id: string) => ((await read(id)).outcome?.report?.["list"] ?? {}) as Record<string, number>;
  const due = async () =>
    (await kysely(own.em).selectFrom("subscriptions").select("status").where("team_id", "=", tenant.teamId).execute())
      .length;

  it("counts those who would be asked by mail, and the import waits for a choice", async () => {
    const client = api(own.keys.live);
    const { id: listId } = (await client.post("/lists", { name: "Readers", optin: "DOUBLE" })).body.data;
    await client.post("/suppressions", { emails: ["suppressed@example.com"] });
    const csv = "email\na@example.com\nb@example.com\nsuppressed@example.com\n";
    const check = async () => {
      const id = await storeImport(own, csv, { kind: "subscribers", uses: ["email"], listId });
      await carryOut(id);
      assert.equal((await listIn(id))["asked"], 2);
      return id;
    };
    const id = await check();
    await assert.rejects(orderImport(own.em, tenant, id), {
      code: "validation_failed",
      message: /^2 people would be asked by email to confirm/,
    });
    assert.deepEqual([(await read(id)).state, await due()], ["CHECKED", 0]);
    await orderImport(own.em, tenant, id, undefined, "confirm");
    assert.deepEqual([(await read(id)).options?.confirmed, await carryOut(id)], [true, "DONE"]);
    const { added, asked } = await listIn(id);
    assert.deepEqual([added, asked, await due()], [3, 0, 3]);
  });

  it("of a list that asks since is no choice: the import writes nothing", async () => {
    const client = api(own.keys.live);
    const { id: listId } = (await client.post("/lists", { name: "Readers", optin: "SINGLE" })).body.data;
    const id = await storeImport(own, "email\na@example.com\n", { kind: "subscribers", uses: ["email"], listId });
    await carryOut(id);
    await orderImport(own.em, tenant, id);
    await client.patch(`/lists/${listId}`, { optin: "DOUBLE" });
    assert.equal(await carryOut(id), "FAILED");
    assert.match((await read(id)).outcome?.failure ?? "", /^1 person would be asked .* Nothing was imported\.$/);
    assert.equal(await due(), 0);
  });

  it("keeps the refused lines as a file to mend, whose reasons no import reads, until a person in one is erased", async () => {
    const rows = ["a@example,'=Ada;x,+49 1", "b@example.com,B,yes", '"c@example.com" x,C,1', "d@example.com,D,2,3"];
    const csv = `E-Mail,Vorname,Note\n${rows.join("\n")}\ne@example.com,${"x".repeat(201)},"from\nf@example.com\0"\n`;
    const id = await storeImport(own, csv, { kind: "contacts", uses: ["email", "first_name", "none"] });
    assert.equal(await carryOut(id), "CHECKED", (await read(id)).outcome?.failure);
    const long = `Line 6: first_name is longer than 200,e@example.com,${"x".repeat(201)},"from`;
    assert.deepEqual((await refusedFile(own.em, tenant, id)).split("\r\n"), [
      "Rejected because,E-Mail,Vorname,Note",
      "Line 2: email is not an email address,a@example,'=Ada;x,'+49 1",
      'Line 4: a quote stands where none may stand,"""c@example.com"" x",C,1',
      "Line 5: 4 fields where the header names 3,d@example.com,D,2,3",
      `${long}\nf@example.com"`,
      "",
    ]);

    const mended = (await refusedFile(own.em, tenant, id)).replace("a@example,", "a@example.com,");
    const again = await storeImport(own, mended, {
      ...{ kind: "contacts", uses: ["ignored", "email", "first_name", "none"] },
    });
    await carryOut(again);
    assert.deepEqual([(await read(again)).outcome?.report?.["created"]], [1]);
    assert.match(await refusedFile(own.em, tenant, again), /^Rejected because,E-Mail,Vorname,Note\r\n/);

    await erasePerson(own.em, own.vault, tenant, "f@example.com", { dryRun: false, slackMs: 0 });
    assert.ok(!JSON.stringify((await read(id)).outcome).includes("f@example.com"));
    assert.ok(!(await refusedFile(own.em, tenant, id)).includes("longer than"));
    const late = await storeImport(own, csv, { kind: "contacts", uses: ["email", "first_name", "none"] });
    await carryOut(late);
    assert.ok(!JSON.stringify((await read(late)).outcome).includes("f@example.com"), "erased before the import");
  });

  it("names no erased person in a header, a note or a reason", async () => {
    await erasePerson(own.em, own.vault, tenant, "f@example.com", { dryRun: false, slackMs: 0 });
    for (const [text, ...uses] of [
      ["f@example.com,Ada Lovelace\nbad,B\nd@example.com,D\n", "email", "none"],
      ["email,f@example.com\nd@example.com,D\n", "email", "none"],
      ["email,Agreed\nf@example.com,Ada Lovelace +44 20\n", "email", "consent"],
    ] as const) {
      const named = await storeImport(own, text, { kind: "contacts", uses });
      assert.equal(await carryOut(named), "CHECKED");
      const { outcome } = await read(named);
      const shown = JSON.stringify(outcome) + (await refusedFile(own.em, tenant, named));
      assert.ok(!/f@example|\+44/.test(shown), shown);
    }
  });

  it("takes a file with an address that is cut off within a character", async () => {
    const id = await storeImport(own, `email\n${"a".repeat(319)}😀\n`, { kind: "contacts", uses: ["email"] });
    assert.equal(await carryOut(id), "CHECKED");
    assert.equal((await read(id)).outcome?.refused?.length, 1);
  });
});
