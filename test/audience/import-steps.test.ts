import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { asyncLocalStorage, type Context } from "@temporalio/activity";
import { sql } from "kysely";
import { pino } from "pino";
import type { ActivityDeps } from "../../activities/deps.ts";
import { createOrderedWorkActivities } from "../../activities/ordered-work.ts";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { deleteField } from "../../domain/audience/contact-fields.ts";
import { deleteSubscriber } from "../../domain/audience/subscribers.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import {
  type ImportOptions,
  importContacts,
  importSubscribers,
  importSuppressions,
  STEP_ROWS,
} from "../../domain/import/import.ts";
import {
  carryOutImport,
  failImport,
  orderCheck,
  orderImport,
  readImport,
  type StoredOptions,
} from "../../domain/import/stored.ts";
import { api } from "../support/api.ts";
import { runApp } from "../support/command.ts";
import { declareFields } from "../support/contacts.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam, tenantOf } from "../support/factories.ts";
import { holdSubscriber, storeImport } from "../support/imports.ts";

const running = new AbortController().signal;
const SUBSCRIBERS: StoredOptions = { kind: "subscribers", uses: ["email"] };
/** Four steps, the last one of one row; the order of the addresses is that of the file. */
const PEOPLE = 3 * STEP_ROWS + 1;
const emailOf = (n: number) => `p${String(n).padStart(5, "0")}@example.com`;
const csvOf = (people: number) => `email\n${Array.from({ length: people }, (_, n) => `${emailOf(n)}\n`).join("")}`;

describe("An import in steps", () => {
  let own: TestTeam;
  let tenant: Tenant;
  beforeEach(async () => {
    own = await makeTeam();
    tenant = tenantOf(own);
  });

  const carryOut = (id: string, stopping = running) => carryOutImport(own.em, own.vault, tenant, id, stopping);
  const read = (id: string) => readImport(own.em, tenant, id);
  const load = (csv: string, options: Partial<ImportOptions> = {}) =>
    importSubscribers(own.em, own.vault, tenant, Readable.from([csv]), { onRefused: () => {}, ...options });
  const count = async (table: "subscribers" | "contacts") =>
    (await kysely(own.em).selectFrom(table).select("id").where("team_id", "=", tenant.teamId).execute()).length;
  const subscribers = () => count("subscribers");
  const written = async (id: string) => (await read(id)).outcome?.place?.people ?? 0;

  /** An import of all people whose third step waits for a row. */
  async function stall(csv = csvOf(PEOPLE), options = SUBSCRIBERS) {
    await load(`email\n${emailOf(2 * STEP_ROWS + 1_000)}\n`);
    const id = await storeImport(own, csv, options);
    assert.equal(await carryOut(id), "CHECKED");
    await orderImport(own.em, tenant, id);
    const { release } = await holdSubscriber(own, emailOf(2 * STEP_ROWS + 1_000));
    const stopping = new AbortController();
    const ended = carryOut(id, stopping.signal);
    // It may be rejected before the test looks.
    ended.catch(() => undefined);
    await eventually(async () => (await written(id)) === 2 * STEP_ROWS, { what: "two steps" });
    return { id, ended, release, stop: () => stopping.abort() };
  }

  it("continues behind its last step after it was cut off: nobody is imported twice, and all are counted", async () => {
    await declareFields(own, { city: "text" });
    const csv = csvOf(PEOPLE).replaceAll(".com", ".com,Bonn").replace("email", "email,city");
    const list = await api(own.keys.live).post("/lists", { name: "Readers", optin: "SINGLE" });
    const options = { ...SUBSCRIBERS, listId: list.body.data.id, uses: ["email", "city"] };
    const { id, ended, release, stop } = await stall(csv, options);
    stop();
    await release();
    await assert.rejects(ended, { name: "AbortError" });
    assert.deepEqual([(await read(id)).state, await written(id), await subscribers()], ["RUNNING", 6_000, 6_000]);
    assert.equal(await count("contacts"), 6_000);

    assert.equal(await carryOut(id), "DONE");
    const { report } = (await read(id)).outcome ?? {};
    assert.deepEqual([report?.["created"], report?.["unchanged"], await subscribers()], [PEOPLE - 1, 1, PEOPLE]);
    assert.deepEqual(report?.["fields"], { contacts_created: PEOPLE, contacts_updated: 0, fields_not_stored: 0 });
    assert.equal(await count("contacts"), PEOPLE);
  });

  it("says how many it has written when it fails, and imports the others when it is run again", async () => {
    const { id, ended, release, stop } = await stall();
    await failImport(own.em, tenant, id, "ada@example.com is the reason.");
    stop();
    await release();
    // The step that waited finds that the import has ended.
    assert.equal(await ended, "FAILED");
    const { outcome } = await read(id);
    assert.match(outcome?.failure ?? "", /^…@… is the reason\. 4,000 people of the file were imported, and stay/);
    assert.equal(await subscribers(), 4_001);

    await orderCheck(own.em, tenant, id, SUBSCRIBERS);
    assert.equal(await carryOut(id), "CHECKED");
    await orderImport(own.em, tenant, id);
    assert.equal(await carryOut(id), "DONE");
    const { report } = (await read(id)).outcome ?? {};
    assert.deepEqual([report?.["created"], report?.["unchanged"], await subscribers()], [2_000, 4_001, PEOPLE]);
  });

  it("says so on the command line, too", async () => {
    const waiting = emailOf(2 * STEP_ROWS + 1_000);
    await load(`email\n${waiting}\n`);
    const { pid, release } = await holdSubscriber(own, waiting);
    const result = runApp(["import", "-", "--team", tenant.teamId], { input: csvOf(PEOPLE) });
    // Of the first two steps, and the one that is held.
    await eventually(async () => (await subscribers()) === 2 * STEP_ROWS + 1, { what: "two steps" });
    const cut = sql<{ cut: boolean }>`
      select pg_terminate_backend(a.pid) as cut from pg_stat_activity a where ${pid} = any(pg_blocking_pids(a.pid))`;
    await eventually(async () => (await cut.execute(kysely(own.em))).rows.length > 0, {
      what: "the step",
      everyMs: 10,
    });
    const { code, stderr } = await result;
    await release();
    assert.deepEqual([code, await subscribers()], [1, 2 * STEP_ROWS + 1], stderr);
    assert.match(stderr, /^4000 rows of the file imported, and kept; import the file again for the others$/m);
  });

  it("lets go of its rows within a second, also while it waits for one", async () => {
    const { ended, release } = await stall();
    // One of the first step, and one that the step locks before the row that it waits for.
    for (const n of [10, 2 * STEP_ROWS + 10, 10, 2 * STEP_ROWS + 10]) {
      await transaction(own.em, async (tx) => {
        await sql`set local lock_timeout = '1s'`.execute(kysely(tx));
        await kysely(tx)
          .insertInto("subscribers")
          .values({ id: `sub_${tenant.teamId}_${n}`, team_id: tenant.teamId, environment: "LIVE", email: emailOf(n) })
          .onConflict((conflict) => conflict.doNothing())
          .execute();
        await kysely(tx).selectFrom("subscribers").select("id").where("email", "=", emailOf(n)).forUpdate().execute();
      });
    }
    await release();
    assert.equal(await ended, "DONE");
  });

  it("writes each person once when two processes carry it out", async () => {
    const id = await storeImport(own, csvOf(2 * STEP_ROWS), SUBSCRIBERS);
    await carryOut(id);
    await orderImport(own.em, tenant, id);
    await Promise.all([carryOut(id), carryOut(id)]);
    const { state, outcome } = await read(id);
    assert.deepEqual([state, outcome?.report?.["created"], outcome?.report?.["unchanged"]], ["DONE", 4_000, 0]);
  });

  it("counts in its check what it then does", async () => {
    const client = api(own.keys.live);
    const { id: listId } = (await client.post("/lists", { name: "Readers", optin: "DOUBLE" })).body.data;
    const join = (people: string) => load(`email,status\n${people}`, { listId, asks: true });
    await join("pending@example.com,subscribed\nout@example.com,unsubscribed\nleaves@example.com,subscribed\n");
    await join("gone@example.com,unsubscribed\nbounced@example.com,cleaned\n");
    const gone = (await client.get("/subscribers", { query: { email: "gone@example.com" } })).body.data[0];
    await client.delete(`/subscribers/${gone.id}`);
    await load("email,first_name\nknown@example.com,Known\nsame@example.com,Same\n");
    await erasePerson(own.em, own.vault, tenant, "erased@example.com", { dryRun: false });
    const csv = [
      "email,first_name,status",
      "pending@example.com,P,subscribed",
      "out@example.com,,subscribed",
      "leaves@example.com,,unsubscribed",
      "gone@example.com,,subscribed",
      "bounced@example.com,,spam",
      "complains@example.com,,spam",
      "known@example.com,Other,subscribed",
      "same@example.com,Same,subscribed",
      "new@example.com,N,subscribed",
      "new@example.com,N,subscribed",
      "stays.out@example.com,,unsubscribed",
      "erased@example.com,,subscribed",
      "nobody,,subscribed",
    ].join("\n");
    for (const options of [{}, { listId, asks: true }, { listId, confirmed: true }]) {
      const checked = await load(csv, { ...options, isDryRun: true });
      assert.deepEqual(await load(csv, options), checked);
    }
    assert.deepEqual((await load(csv, { listId, isDryRun: true })).list, {
      ...{ added: 0, asked: 0, confirmed: 0, alreadySubscribed: 4, newlyOptedOut: 0, optedOut: 4 },
    });

    await declareFields(own, { city: "text" });
    const given = csv
      .replaceAll("\n", ",Rom\n")
      .replace("status,Rom", "status,city")
      .replace("new@example", "newer@example");
    for (const options of [{ listId, asks: true }, { listId, confirmed: true }, {}]) {
      const checked = await load(given, { ...options, isDryRun: true });
      assert.notEqual(checked.fields, undefined);
      assert.deepEqual(await load(given, options), checked);
    }
    const contacts = "email,city\nnew@example.com,Rom\nerased@example.com,Rom\nbounced@example.com,Bonn\n";
    for (const file of [contacts, contacts, contacts.replace("Rom", "")]) {
      const options = { onRefused: () => {} };
      const checking = { ...options, isDryRun: true };
      const checked = await importContacts(own.em, own.vault, tenant, Readable.from([file]), checking);
      assert.deepEqual(await importContacts(own.em, own.vault, tenant, Readable.from([file]), options), checked);
    }
    const block = "email\nnew@example.com\nbounced@example.com\nerased@example.com\nNEW@example.com\n";
    for (const suppressed of [1, 0]) {
      const options = { onRefused: () => {} };
      const checking = { ...options, isDryRun: true };
      const checked = await importSuppressions(own.em, own.vault, tenant, Readable.from([block]), checking);
      assert.deepEqual(
        [checked.suppressed, checked.alreadySuppressed, checked.refused],
        [suppressed, 4 - suppressed, 0],
      );
      assert.deepEqual(await importSuppressions(own.em, own.vault, tenant, Readable.from([block]), options), checked);
    }
  });

  it("reads alone while it is checked: no table and no row of others is locked", async () => {
    await declareFields(own, { city: "text" });
    const { id: listId } = (await api(own.keys.live).post("/lists", { name: "Readers", optin: "SINGLE" })).body.data;
    await load("email\na@example.com\n", { listId });
    await transaction(own.em, (tx) => suppress(tx, tenant, ["b@example.com"], "MANUAL"));
    const people = () => Readable.from(["email,first_name,status\na@example.com,A,spam\nb@example.com,B,subscribed\n"]);
    const options = { listId, confirmed: true, entersSequences: true, onRefused: () => {}, isDryRun: true };
    for (const check of [importSubscribers, importContacts, importSuppressions]) {
      // All locks of a transaction are held until its end.
      await transaction(own.em, async (tx) => {
        await check(tx, own.vault, tenant, people(), options);
        const { rows } = await sql`
          select l.locktype, c.relname, l.mode from pg_locks l left join pg_class c on c.oid = l.relation
          where l.pid = pg_backend_pid() and l.mode <> 'AccessShareLock'
            and (l.locktype = 'advisory' or c.relnamespace = 'public'::regnamespace)`.execute(kysely(tx));
        assert.deepEqual(rows, []);
      });
    }
  });

  it("lifts no opt-out of a subscriber who is deleted while a step waits for them", async () => {
    const client = api(own.keys.live);
    const { id: listId } = (await client.post("/lists", { name: "Readers", optin: "SINGLE" })).body.data;
    await load("email,status\nout@example.com,unsubscribed\n", { listId });
    const [{ id }] = (await client.get("/subscribers", { query: { email: "out@example.com" } })).body.data;
    const deleting = own.em.fork();
    await deleting.begin();
    await deleteSubscriber(deleting, own.vault, tenant, id);
    const { rows } = await sql<{ pid: number }>`select pg_backend_pid() as pid`.execute(kysely(deleting));
    const importing = load("email\nout@example.com\n", { listId });
    const waits = sql<{
      pid: number;
    }>`select pid from pg_stat_activity where ${rows[0]?.pid} = any(pg_blocking_pids(pid))`;
    await eventually(async () => (await waits.execute(kysely(own.em))).rows.length > 0, {
      what: "the step that waits",
      everyMs: 10,
    });
    await deleting.commit();
    assert.equal((await importing).list?.optedOut, 1);
    const [now] = await kysely(own.em)
      .selectFrom("subscriptions")
      .select("status")
      .where("list_id", "=", listId)
      .execute();
    assert.equal(now?.status, "UNSUBSCRIBED");
  });

  it("drops the values of a field that is deleted before they are written", async () => {
    await declareFields(own, { city: "text", team: "text" });
    const csv = "email,city,team\na@example.com,Rom,Red\nnobody,,\n";
    await importContacts(own.em, own.vault, tenant, Readable.from([csv]), {
      // The whole file is read before anyone is written.
      onRefused: () => deleteField(own.em, tenant, "city").then(() => undefined),
    });
    const [contact] = (await api(own.keys.live).get("/contacts")).body.data;
    assert.deepEqual(contact.fields, { team: "Red" });
  });

  it("makes no contact without a field that is left, and refuses a use that names no field", async () => {
    const client = api(own.keys.live);
    const { id: listId } = (await client.post("/lists", { name: "Readers", optin: "SINGLE" })).body.data;
    await declareFields(own, { city: "text" });
    // Made anew with another type, after the file was read.
    const remake = async () => {
      await deleteField(own.em, tenant, "city");
      await declareFields(own, { city: "number" });
    };
    const { fields } = await load("email,city\na@example.com,Rom\nnobody,\n", { listId, onRefused: remake });
    assert.deepEqual(fields, { contactsCreated: 0, contactsUpdated: 0, fieldsNotStored: 1 });
    assert.equal(await count("contacts"), 0);

    const store = () =>
      storeImport(own, "email,city\nb@example.com,7\n", { ...SUBSCRIBERS, listId, uses: ["email", "city"] });
    const id = await store();
    assert.equal(await carryOut(id), "CHECKED");
    await orderImport(own.em, tenant, id);
    await deleteField(own.em, tenant, "city");
    assert.equal(await carryOut(id), "FAILED");
    const late = await store();
    assert.equal(await carryOut(late), "FAILED");
    for (const each of [id, late]) assert.match((await read(each)).outcome?.failure ?? "", /^There is no field "city"/);
    assert.equal(await subscribers(), 1);
  });

  it("is not given up for attempts that found no place", async () => {
    const { orm, vault } = await backdoor();
    let failures = 0;
    const failing = Object.create(vault, {
      hash: {
        value: (...parts: Parameters<typeof vault.hash>) => {
          if (failures-- > 0) throw new Error("the disk is full");
          return vault.hash(...parts);
        },
      },
    });
    const deps = { orm, vault: failing, log: pino({ level: "silent" }), stopping: running };
    const { runOrdered } = createOrderedWorkActivities(deps as unknown as ActivityDeps);
    const attempt = (importId: string) => {
      const context = { info: { attempt: 100 }, cancellationSignal: running, heartbeat: () => {} };
      return asyncLocalStorage.run(context as unknown as Context, () =>
        runOrdered({ kind: "import", id: importId, ...tenant }),
      );
    };

    await load(`email\n${emailOf(0)}\n`);
    const first = await storeImport(own, csvOf(1), SUBSCRIBERS);
    await attempt(first);
    await orderImport(own.em, tenant, first);
    const { release } = await holdSubscriber(own, emailOf(0));
    const busy = attempt(first);
    const second = await storeImport(own, csvOf(2), SUBSCRIBERS);
    for (let n = 0; n < 10; n++) await assert.rejects(attempt(second), { type: "no_place" });
    await release();
    assert.deepEqual(await busy, { state: "DONE" });

    failures = 1;
    await assert.rejects(attempt(second), /disk/);
    assert.equal((await read(second)).state, "CHECKING");
    assert.deepEqual(await attempt(second), { state: "CHECKED" });
    await orderCheck(own.em, tenant, second, SUBSCRIBERS);
    failures = 5;
    for (let n = 0; n < 4; n++) await assert.rejects(attempt(second), /disk/);
    assert.deepEqual(await attempt(second), { state: "FAILED" });
    assert.equal((await read(second)).outcome?.failure, "The service failed. Try again, or ask its operator.");
  });
});
