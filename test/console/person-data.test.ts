import assert from "node:assert/strict";
import { asyncLocalStorage, type Context } from "@temporalio/activity";
import { sql } from "kysely";
import pino from "pino";
import type { ActivityDeps } from "../../activities/deps.ts";
import { createOrderedWorkActivities, reconcileOrderedWork } from "../../activities/ordered-work.ts";
import type { PersonRequestKind } from "../../db/entities/person-request.ts";
import { kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import { carryOutRequest, failRequest, orderRequest, readRequests } from "../../domain/erasure/requests.ts";
import { newId } from "../../domain/ids.ts";
import { orderedWorkflowId } from "../../temporal/ids.ts";
import { textsIn } from "../histories/files.ts";
import { api } from "../support/api.ts";
import { clientAs, clientNamed, refusalCodeOf } from "../support/console.ts";
import { eventually } from "../support/eventually.ts";
import { backdoor, makeTeam, type TestTeam, tenantOf, uniqueEmail } from "../support/factories.ts";
import { testsOf } from "../support/long.ts";
import { kill } from "../support/processes.ts";
import { prune } from "../support/retention.ts";
import { temporalClient } from "../support/temporal.ts";

const { it, longIt } = testsOf();
type Client = Awaited<ReturnType<typeof clientAs>>;

const requestsOf = async (client: Client, email: string) =>
  (await client.app.people.requests.query({ query: { email } })).data;

/** Of the latest request. */
async function ended(client: Client, email: string) {
  const latest = async () => (await requestsOf(client, email)).requests[0];
  await eventually(async () => (await latest())?.state !== "RUNNING", { what: "the end of the export or erasure" });
  return (await latest()) ?? assert.fail("no request");
}

describe("The data of a person in the console", () => {
  let own: TestTeam;
  let admin: Client;
  before(async () => {
    own = await makeTeam();
    admin = await clientNamed(own, "Grace", "ADMIN");
  });
  const addPerson = async (email = uniqueEmail()) => {
    await api(own.keys.live).post("/contacts", { email, first_name: "<Ada>" });
    return email;
  };
  const erase = (email: string, typed = email) => admin.app.people.erasePerson.mutate({ body: { email, typed } });

  it("are exported, and erased with that export, by an ADMIN, of whom no history and no entry names the person", async () => {
    const email = await addPerson();
    const order = { body: { email: email.toUpperCase() } };
    let id = "";
    // One of them may have ended before the next is ordered.
    await eventually(
      async () => {
        const orders = await Promise.all([1, 2, 3].map(() => admin.app.people.exportPerson.mutate(order)));
        const ids = orders.map(({ data }) => data.id);
        id = (await requestsOf(admin, email)).requests[0]?.id ?? "";
        return new Set(ids).size === 1 && ids.includes(id);
      },
      { what: "orders of an export that is under way already" },
    );
    const done = await ended(admin, email);
    assert.deepEqual([done.kind, done.state, done.email, done.by], ["EXPORT", "DONE", email, "Grace"]);
    const days = (Date.parse(done.expires_at) - Date.now()) / 86_400_000;
    assert.ok(days > 6.9 && days <= 7, `${days}`);
    const file = (as: "json" | "html", client = admin) =>
      client.app.people.file.query({ params: { requestId: id }, query: { as } });
    assert.equal(JSON.parse((await file("json")).data.text).contact[0].first_name, "<Ada>");
    assert.ok((await file("html")).data.text.includes("<th>first name</th><td>&lt;Ada&gt;</td>"));
    const editor = await clientAs(own, "EDITOR");
    assert.equal(await refusalCodeOf(file("json", editor)), "role_insufficient");
    assert.equal(await refusalCodeOf(editor.app.people.exportPerson.mutate(order)), "role_insufficient");

    assert.equal(await refusalCodeOf(erase(email, "ada")), "validation_failed");
    const erasures = await Promise.all([erase(email), erase(email)]);
    assert.equal(erasures[0].data.id, erasures[1].data.id);
    const erased = await ended(admin, email);
    assert.deepEqual([erased.kind, erased.state, erased.email, erased.step], ["ERASURE", "DONE", null, null]);
    assert.ok(erased.outcome?.rows.some(({ table, rows }) => table === "contacts" && rows === 1));
    const page = await requestsOf(admin, email);
    assert.deepEqual([page.requests.length, page.erased?.by], [1, "Grace"]);
    assert.equal(await refusalCodeOf(file("json")), "not_found");
    assert.equal(await refusalCodeOf(erase(email)), "person_erased");
    assert.equal(await refusalCodeOf(admin.app.people.exportPerson.mutate(order)), "person_erased");

    const { client: temporal, close } = await temporalClient();
    for (const requestId of [id, erased.id]) {
      const handle = temporal.workflow.getHandle(orderedWorkflowId("person", requestId));
      assert.deepEqual(await handle.result(), { state: "DONE" });
      const { memo, searchAttributes } = await handle.describe();
      const texts = [...textsIn(await handle.fetchHistory()), JSON.stringify([memo, searchAttributes])];
      assert.ok(!texts.join("\n").includes(email.split("@")[0] ?? ""));
    }
    await close();
    const entries = JSON.stringify((await admin.app.audit.page.query({ query: { kind: "preq" } })).data.entries);
    for (const text of ["people.exportPerson", "people.erasePerson", id, erased.id]) assert.ok(entries.includes(text));
    assert.ok(!entries.includes(email));
  });

  it("leave with an export after seven days", async () => {
    const email = await addPerson();
    await admin.app.people.exportPerson.mutate({ body: { email } });
    const { id } = await ended(admin, email);
    await sql`update person_requests set expires_at = now() - interval '1 second' where id = ${id}`.execute(
      kysely(own.em.fork()),
    );
    const file = () => admin.app.people.file.query({ params: { requestId: id }, query: { as: "json" } });
    assert.equal(await refusalCodeOf(file()), "not_found");
    await prune();
    assert.deepEqual((await requestsOf(admin, email)).requests, []);
  });

  longIt("are erased once when the worker is killed in the middle", async () => {
    const email = await addPerson();
    await erase(email);
    const step = async () => (await requestsOf(admin, email)).requests[0]?.step;
    await eventually(async () => Boolean(await step()), { what: "a step", everyMs: 50 });
    const { again } = kill("maintenance");
    assert.equal((await ended(admin, email)).state, "DONE");
    assert.equal((await api(own.keys.live).get(`/contacts?email=${email}`)).body.data.length, 0);
    await again;
  });
});

describe("A request about a person", () => {
  let own: TestTeam;
  let tenant: Tenant;
  before(async () => {
    own = await makeTeam();
    tenant = tenantOf(own);
  });
  const order = (kind: PersonRequestKind, email: string) =>
    transaction(own.em.fork(), (em) => orderRequest(em, own.vault, tenant, { kind, email, memberId: own.owner.id }));
  const find = async (email: string) => (await readRequests(own.em.fork(), own.vault, tenant, email)).requests[0];
  const running = new AbortController().signal;
  const carryOut = (id: string, onStep = (_: string) => {}, stopping = running) =>
    carryOutRequest(own.em, own.vault, tenant, id, stopping, onStep, { slackMs: 50 });

  it("shows its step, is completed by a repetition, and its failure lets the erasure be ordered again", async () => {
    const email = uniqueEmail();
    await api(own.keys.live).post("/subscribers", { email });
    const id = await order("ERASURE", email);
    const stopping = new AbortController();
    const steps: string[] = [];
    const stopAt = (step: string) => {
      steps.push(step);
      if (step === "ledgers of sends") stopping.abort();
    };
    await assert.rejects(carryOut(id, stopAt, stopping.signal), { name: "AbortError" });
    const stopped = await find(email);
    assert.deepEqual([stopped?.state, stopped?.step, stopped?.email], ["RUNNING", "ledgers of sends", email]);
    await failRequest(own.em.fork(), tenant, id, "An operator has ended it.");
    const failed = await find(email);
    assert.deepEqual([failed?.state, failed?.step, failed?.email], ["FAILED", "An operator has ended it.", null]);
    const again = await order("ERASURE", email);
    assert.notEqual(again, id);
    assert.equal(await carryOut(again), "DONE");
    assert.equal(await carryOut(again), "DONE", "a repetition does nothing");
    assert.deepEqual(steps.slice(0, 3), [
      "refusing the address",
      "waiting for transactions that are open",
      "contacts and subscribers",
    ]);
  });

  it("says that it waits for open transactions, leaves its place, and tries again by spacing", async () => {
    const { orm, vault } = await backdoor();
    const email = uniqueEmail();
    const id = await order("ERASURE", email);
    const holder = orm.em.fork();
    await holder.begin();
    await holder.execute("select pg_current_xact_id()");
    const state = await carryOutRequest(own.em, vault, tenant, id, running, () => {}, { waitMs: 100 });
    await holder.rollback();
    const waiting = await find(email);
    assert.deepEqual(
      [state, waiting?.state, waiting?.step],
      ["RUNNING", "RUNNING", "waiting for transactions that are open; tried again every minute"],
    );
    assert.equal(await carryOut(id), "DONE");
  });

  longIt("leaves its place to the work of other teams while it waits, and beats with its step", async () => {
    const { orm, vault } = await backdoor();
    const id = await order("ERASURE", uniqueEmail());
    const deps = { orm, vault, log: pino({ level: "silent" }), stopping: running } as unknown as ActivityDeps;
    const { runOrdered } = createOrderedWorkActivities(deps);
    const beats: string[] = [];
    const heartbeat = (facts: unknown) => void beats.push(JSON.stringify(facts));
    const context = { info: {}, cancellationSignal: running, heartbeat } as unknown as Context;
    const attempt = () => asyncLocalStorage.run(context, () => runOrdered({ kind: "person", id, ...tenant }));
    const holder = orm.em.fork();
    await holder.begin();
    await holder.execute("select pg_current_xact_id()");
    const waits = attempt();
    await assert.rejects(attempt(), { type: "no_place" });
    await assert.rejects(waits, { type: "running", nextRetryDelay: 60_000 });
    await holder.rollback();
    assert.ok(beats.includes('{"step":"waiting for transactions that are open"}'), beats.join());
    assert.deepEqual(await attempt(), { state: "DONE" });
  });

  it("of an export finds its row gone when the person is erased meanwhile, by any way, which ends an erasure that waits", async () => {
    const email = uniqueEmail();
    const [exported, waiting] = [await order("EXPORT", email), await order("ERASURE", email)];
    const options = { dryRun: false, slackMs: 50 };
    let erasure: Promise<unknown> | undefined;
    await carryOut(exported, () => {
      erasure ??= erasePerson(own.em.fork(), own.vault, tenant, email, options);
    });
    await erasure;
    const left = await readRequests(own.em.fork(), own.vault, tenant, email);
    assert.deepEqual(
      left.requests.map(({ id, state, email: held }) => [id, state, held]),
      [[waiting, "DONE", null]],
    );
    assert.equal(await carryOut(exported), "DELETED");
    assert.equal(await carryOut(waiting), "DONE");
  });

  it("is one of ten under way at most, and of a hundred exports, of a team", async () => {
    const other = await makeTeam();
    const insert = (kind: PersonRequestKind, state: string, count: number) =>
      sql`insert into person_requests (id, team_id, environment, kind, address_hash, member_id, state, expires_at)
        select ${kind} || n, ${other.team.id}, 'LIVE', ${kind}, n::text, 'mbr_x', ${state}, now() + interval '1 day'
        from generate_series(1, ${count}::int) n`.execute(kysely(other.em.fork()));
    const attempt = (kind: PersonRequestKind) =>
      transaction(other.em.fork(), (em) =>
        orderRequest(em, other.vault, tenantOf(other), { kind, email: uniqueEmail(), memberId: "mbr_x" }),
      );
    await insert("EXPORT", "DONE", 100);
    await assert.rejects(attempt("EXPORT"), { code: "resource_limit_reached", message: /100 exports of people/ });
    await insert("ERASURE", "RUNNING", 9);
    await attempt("ERASURE");
    await assert.rejects(attempt("ERASURE"), {
      code: "resource_limit_reached",
      message: /10 exports and erasures under way/,
    });
    await order("EXPORT", uniqueEmail());
    await kysely(other.em.fork()).deleteFrom("person_requests").where("team_id", "=", other.team.id).execute();
  });

  it("gets its workflow from the reconciler where the start was lost", async () => {
    const email = uniqueEmail();
    const id = await order("EXPORT", email);
    const late = newId("personRequest");
    const db = kysely(own.em.fork());
    // As it was ordered two minutes ago.
    await sql`insert into person_requests (id, team_id, environment, kind, email, address_hash, member_id, expires_at, updated_at)
      select ${late}, team_id, environment, kind, email, address_hash, member_id, expires_at, now() - interval '2 minutes'
      from person_requests where id = ${id}`.execute(db);
    const { client, close } = await temporalClient();
    const deps = { orm: (await backdoor()).orm, log: pino({ level: "silent" }) } as unknown as ActivityDeps;
    await asyncLocalStorage.run({ client } as unknown as Context, () => reconcileOrderedWork(deps));
    assert.deepEqual(await client.workflow.getHandle(orderedWorkflowId("person", late)).result(), { state: "DONE" });
    await close();
    assert.equal((await find(email))?.state, "DONE");
  });
});
