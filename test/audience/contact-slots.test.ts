import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { appRouter } from "../../api/router.ts";
import { type EntityManager, forTenant, kysely, type MikroORM, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { freeSlots, moveSlot, takeSlots } from "../../domain/audience/contact-slots.ts";
import { ApiError } from "../../domain/errors.ts";
import { importSubscribers } from "../../domain/import/import.ts";
import { type ApiAnswer, api, codeOf, type Json, tally } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import {
  makeTeam,
  openStackDatabase,
  setLimits,
  type TestTeam,
  tenantOf,
  unique,
  uniqueEmail,
} from "../support/factories.ts";

describe("Contact slots", () => {
  let team: TestTeam;
  let tenant: Tenant;
  let other: TestApp;
  let wide: MikroORM;
  before(async () => {
    other = await serveRoutes(appRouter);
    wide = await openStackDatabase("application", 12);
  });
  after(async () => {
    await other.close();
    await wide.close(true);
  });
  beforeEach(async () => {
    team = await makeTeam();
    tenant = tenantOf(team);
  });

  const create = (email: string, base?: string) => api(team.keys.live, base).post("/subscribers", { email });
  const change = (id: string, email: string) => api(team.keys.live).patch(`/subscribers/${id}`, { email });
  const impactOf = ({ body, text }: ApiAnswer): Json => body.meta?.impact ?? assert.fail(text);
  const load = (emails: readonly string[]) =>
    importSubscribers(team.em, team.vault, tenant, Readable.from([`email\n${emails.join("\n")}\n`]), {
      onRefused: (line) => assert.fail(`line ${line}`),
    });
  /** Work in a transaction of a pool as wide as an API process has it. @returns "done", or the code of its refusal */
  const inWide = (work: (em: EntityManager) => Promise<unknown>): Promise<string> =>
    transaction(forTenant(wide.em, tenant), work).then(
      () => "done",
      (error) => (error instanceof ApiError ? error.code : assert.fail(error)),
    );
  const asContact = (email: string) => inWide((em) => takeSlots(em, tenant, [email]));
  const used = async (key = team.keys.live): Promise<number> => {
    const { limit, used, remaining } = (await api(key).get("/usage")).body.data.limits["contacts.slots"];
    if (limit !== null) assert.equal(remaining, Math.max(0, limit - used));
    return used;
  };
  /** Addresses that hold a slot, with the number of their records. */
  const held = async (): Promise<Record<string, number>> => {
    const rows = await kysely(team.em)
      .selectFrom("audience_addresses")
      .select(["email", "holders"])
      .where("team_id", "=", tenant.teamId)
      .where("environment", "=", tenant.environment)
      .execute();
    return Object.fromEntries(rows.map(({ email, holders }) => [email, holders]));
  };
  const subscribed = async (): Promise<string[]> => {
    const rows = await kysely(team.em)
      .selectFrom("subscribers")
      .select("email")
      .where("team_id", "=", tenant.teamId)
      .where("environment", "=", tenant.environment)
      .execute();
    return rows.map(({ email }) => email);
  };

  it("let exactly as many of 50 creates of both kinds at once through as the plan allows, over two processes of the API", async () => {
    await setLimits(team, { contactSlots: 31 });
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) =>
        api(team.keys.live, i % 2 ? other.base : undefined).post(i % 4 < 2 ? "/contacts" : "/subscribers", {
          email: uniqueEmail(),
        }),
      ),
    );
    assert.deepEqual(tally(answers.map(codeOf)), { 201: 31, quota_exceeded: 19 });
    const refused = answers.find(({ status }) => status === 402);
    assert.deepEqual([refused?.body.error.type, refused?.body.error.param], ["quota_error", undefined]);
    assert.equal(await used(), 31);
  });

  it("stay exact under creates, address changes, deletes and an import at once", async () => {
    await setLimits(team, { contactSlots: 60 });
    const first = Array.from({ length: 20 }, (_, i) => `first${i}@example.com`);
    const made = await Promise.all(first.map((email) => create(email)));
    const ids: string[] = made.map(({ body }) => body.data.id);
    const contacts = first.slice(0, 10);
    for (const email of contacts) assert.equal(await asContact(email), "done");
    assert.equal(await used(), 20);

    const kept = new Set(contacts);
    const [changed, created, taken, freed, imported] = await Promise.all([
      // Ten leave an address that a contact has, and take a slot more; ten take theirs along.
      Promise.all(ids.map((id, i) => change(id, `second${i}@example.com`))),
      Promise.all(Array.from({ length: 25 }, (_, i) => create(`third${i}@example.com`))),
      // Of these, five are created as subscribers at the same time.
      Promise.all(Array.from({ length: 10 }, (_, i) => asContact(`third${20 + i}@example.com`))),
      Promise.all(contacts.slice(0, 5).map((email) => inWide((em) => freeSlots(em, tenant, [email])))),
      load(["third1@example.com", "fourth1@example.com", "fourth2@example.com"]).then(
        () => "done",
        (error) => error.code,
      ),
    ]);
    for (const email of contacts.slice(0, 5)) kept.delete(email);
    for (const [i, outcome] of taken.entries()) if (outcome === "done") kept.add(`third${20 + i}@example.com`);
    assert.deepEqual(tally(freed), { done: 5 });
    const refusals = [...changed, ...created].map(codeOf).filter((text) => !["200", "201"].includes(text));
    for (const text of refusals) assert.ok(["quota_exceeded", "resource_already_exists"].includes(text), text);
    assert.ok(["done", "quota_exceeded"].includes(imported), imported);

    const expected: Record<string, number> = {};
    for (const email of [...(await subscribed()), ...kept]) expected[email] = (expected[email] ?? 0) + 1;
    assert.deepEqual(await held(), expected);
    const count = Object.keys(expected).length;
    assert.equal(await used(), count);
    assert.ok(count <= 60, `${count}`);

    // Every slot that is left can be taken, and no further one.
    const more = await Promise.all(Array.from({ length: 50 }, () => create(uniqueEmail())));
    assert.deepEqual(tally(more.map(codeOf)), { 201: 60 - count, quota_exceeded: count - 10 });
    assert.equal(await used(), 60);
  });

  it("count an address once, whichever of its records comes first and goes last", async () => {
    await setLimits(team, { contactSlots: 1 });
    const email = uniqueEmail();
    const both = await Promise.all([create(email).then(codeOf), asContact(email)]);
    assert.deepEqual(both, ["201", "done"]);
    assert.equal(await used(), 1);
    assert.deepEqual(await held(), { [email]: 2 });
    await Promise.all([1, 2].map(() => inWide((em) => freeSlots(em, tenant, [email]))));
    assert.equal(await used(), 0);
    assert.deepEqual(await held(), {});
    await Promise.all([1, 2].map(() => asContact(email)));
    assert.equal(await used(), 1);
  });

  it("follow an address change at the ceiling, unless the former address keeps its slot", async () => {
    await setLimits(team, { contactSlots: 1 });
    const [former, next, third] = [uniqueEmail(), uniqueEmail(), uniqueEmail()];
    const { body } = await create(former);
    assert.equal(codeOf(await change(body.data.id, next)), "200");
    assert.deepEqual(await held(), { [next]: 1 });
    assert.equal(await asContact(next), "done");
    const refused = await change(body.data.id, third);
    assert.deepEqual([refused.status, codeOf(refused)], [402, "quota_exceeded"]);
    assert.match(refused.body.error.message, /Delete contacts or subscribers, or raise the plan's limit\.$/);
    assert.deepEqual([await used(), await held()], [1, { [next]: 2 }]);
    await inWide((em) => moveSlot(em, tenant, next, next));
    assert.deepEqual([await used(), await held()], [1, { [next]: 2 }]);
  });

  it("are no fewer for a plan that was lowered: it refuses new addresses until enough are free", async () => {
    const emails = Array.from({ length: 5 }, () => uniqueEmail());
    for (const email of emails) await create(email);
    await setLimits(team, { contactSlots: 3 });
    assert.equal(codeOf(await create(uniqueEmail())), "quota_exceeded");
    assert.equal(await used(), 5);
    for (const email of emails.slice(0, 3)) await inWide((em) => freeSlots(em, tenant, [email]));
    assert.deepEqual(tally((await Promise.all([create(uniqueEmail()), create(uniqueEmail())])).map(codeOf)), {
      201: 1,
      quota_exceeded: 1,
    });
    await setLimits(team, { contactSlots: null });
    assert.equal(codeOf(await create(uniqueEmail())), "201");
    assert.equal(await used(), 4);
  });

  it("belong to an environment", async () => {
    await setLimits(team, { contactSlots: 1 });
    const email = uniqueEmail();
    for (const key of [team.keys.live, team.keys.test]) {
      assert.equal(codeOf(await api(key).post("/subscribers", { email })), "201");
      assert.equal(await used(key), 1);
      assert.equal(codeOf(await api(key).post("/subscribers", { email: uniqueEmail() })), "quota_exceeded");
    }
  });

  it("let an import in as a whole or not at all, and count its new addresses once", async () => {
    await setLimits(team, { contactSlots: 4 });
    await create("a@example.com");
    const file = ["a@example.com", "b@example.com", "c@example.com", "b@example.com"];
    for (let i = 0; i < 2; i++) await load(file);
    assert.equal(await used(), 3);
    await assert.rejects(load([...file, "d@example.com", "e@example.com"]), (error) => {
      assert.ok(error instanceof ApiError && error.code === "quota_exceeded", `${error}`);
      assert.match(error.message, /needs 2, and the team has 1 left/);
      return true;
    });
    assert.deepEqual([await used(), (await subscribed()).length], [3, 3]);
    await load([...file, "d@example.com"]);
    assert.deepEqual([await used(), Object.keys(await held()).length], [4, 4]);
  });

  describe("of contacts", () => {
    const bulk = (emails: readonly string[], query = {}) =>
      api(team.keys.live).post(
        "/contacts/bulk",
        { contacts: emails.map((email) => ({ email })) },
        { query, idempotencyKey: unique("key") },
      );
    const outcomes = ({ body, text }: ApiAnswer): string[] => {
      assert.ok(body.data, text);
      return body.data.results.map(({ status, error }: Json) => error?.code ?? status);
    };

    it("go to the first new addresses of a bulk call, and the other items fail alone", async () => {
      await setLimits(team, { contactSlots: 4 });
      await bulk(["known@example.com"]);
      await create("held@example.com");
      const emails = ["z", "known", "y", "x", "held", "x", "a"].map((name) => `${name}@example.com`);
      const { quota } = impactOf(await bulk(emails, { dry_run: "true" }));
      assert.deepEqual(quota, { kind: "contact_slots", amount: 2, used: 2, limit: 4, remaining: 2 });
      const full = "quota_exceeded";
      assert.deepEqual(outcomes(await bulk(emails)), ["created", "unchanged", "created", full, "created", full, full]);
      assert.equal(await used(), 4);
      assert.deepEqual(await held(), {
        "held@example.com": 2,
        "known@example.com": 1,
        "y@example.com": 1,
        "z@example.com": 1,
      });
    });

    it("are taken to the last one by two bulk calls at once, the first of a team", async () => {
      await setLimits(team, { contactSlots: 4 });
      const emails = () => Array.from({ length: 3 }, () => uniqueEmail());
      const answers = await Promise.all([bulk(emails()), bulk(emails())]);
      assert.deepEqual(tally(answers.flatMap(outcomes)), { created: 4, quota_exceeded: 2 });
      assert.equal(await used(), 4);
    });
  });

  it("show on a dry run where the team stands, and take nothing", async () => {
    const dry = { query: { dry_run: "true" } };
    const email = uniqueEmail();
    const client = api(team.keys.live);
    assert.equal(impactOf(await client.post("/subscribers", { email }, dry)).quota, null, "no ceiling, no quota");
    await setLimits(team, { contactSlots: 3 });
    const { body } = await create(uniqueEmail());
    const stands = { kind: "contact_slots", used: 1, limit: 3, remaining: 2 };
    assert.deepEqual(impactOf(await client.post("/subscribers", { email }, dry)).quota, { ...stands, amount: 1 });
    assert.equal(await used(), 1);

    const path = `/subscribers/${body.data.id}`;
    assert.equal(impactOf(await client.patch(path, { email }, dry)).quota, null, "the slot moves along");
    await asContact(body.data.email);
    assert.deepEqual(impactOf(await client.patch(path, { email }, dry)).quota, { ...stands, amount: 1 });
    await asContact(email);
    const held = { ...stands, used: 2, remaining: 1, amount: 0 };
    assert.deepEqual(impactOf(await client.post("/subscribers", { email }, dry)).quota, held);

    await setLimits(team, { contactSlots: 2 });
    const beyond = await client.post("/subscribers", { email: uniqueEmail() }, dry);
    assert.deepEqual([beyond.status, codeOf(beyond)], [402, "quota_exceeded"]);
  });
});
