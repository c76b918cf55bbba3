import assert from "node:assert/strict";
import { Readable } from "node:stream";
import { transaction } from "../../db/transaction.ts";
import { importContacts } from "../../domain/csv-import.ts";
import { type ApiAnswer, type ApiClient, api, codeOf, type Json, tally } from "../support/api.ts";
import { makeTeam, setLimits, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";

describe("The contact slots of contacts", () => {
  let team: TestTeam;
  let client: ApiClient;
  beforeEach(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
  });

  const used = async (): Promise<number> => (await client.get("/usage")).body.data.limits["contacts.slots"].used;
  const bulk = (emails: readonly string[], query = {}) =>
    client.post(
      "/contacts/bulk",
      { contacts: emails.map((email) => ({ email })) },
      { query, idempotencyKey: unique("key") },
    );
  const outcomes = ({ body, text }: ApiAnswer): string[] => {
    assert.ok(body.data, text);
    return body.data.results.map(({ status, error }: Json) => error?.code ?? status);
  };

  it("hold exactly under 50 creates of contacts and subscribers at once", async () => {
    await setLimits(team, { contactSlots: 31 });
    const answers = await Promise.all(
      Array.from({ length: 50 }, (_, i) => client.post(i % 2 ? "/contacts" : "/subscribers", { email: uniqueEmail() })),
    );
    assert.deepEqual(tally(answers.map(codeOf)), { 201: 31, quota_exceeded: 19 });
    assert.equal(await used(), 31);
  });

  it("count an address that is both once, and free it with the last record", async () => {
    await setLimits(team, { contactSlots: 1 });
    const email = uniqueEmail();
    const [contact, subscriber] = await Promise.all(
      ["/contacts", "/subscribers"].map((path) => client.post(path, { email })),
    );
    assert.deepEqual([contact && codeOf(contact), subscriber && codeOf(subscriber), await used()], ["201", "201", 1]);
    const path = `/contacts/${contact?.body.data.id}`;
    assert.equal(codeOf(await client.patch(path, { email: uniqueEmail() })), "quota_exceeded");
    assert.equal(codeOf(await client.delete(path)), "200");
    assert.equal(await used(), 1);
    assert.equal(
      codeOf(await client.patch(`/subscribers/${subscriber?.body.data.id}`, { email: uniqueEmail() })),
      "200",
    );
    assert.equal(codeOf(await client.post("/contacts", { email })), "quota_exceeded");
  });

  it("go to the first new addresses of a bulk call, and the other items fail alone", async () => {
    await setLimits(team, { contactSlots: 4 });
    await bulk(["known@example.com"]);
    await client.post("/subscribers", { email: "held@example.com" });
    const emails = ["z", "known", "y", "x", "held", "x", "a"].map((name) => `${name}@example.com`);
    const dry = await bulk(emails, { dry_run: "true" });
    assert.deepEqual(dry.body.meta?.impact.quota, {
      kind: "contact_slots",
      amount: 2,
      used: 2,
      limit: 4,
      remaining: 2,
    });
    const full = "quota_exceeded";
    assert.deepEqual(outcomes(await bulk(emails)), ["created", "unchanged", "created", full, "created", full, full]);
    assert.equal(await used(), 4);
    const { body } = await client.get("/contacts", { query: { limit: 100 } });
    assert.deepEqual(
      body.data.map(({ email }: Json) => email).sort(),
      ["held", "known", "y", "z"].map((name) => `${name}@example.com`),
    );
  });

  it("let an import of contacts in as a whole or not at all", async () => {
    await setLimits(team, { contactSlots: 3 });
    await client.post("/subscribers", { email: "held@example.com" });
    const tenant = { teamId: team.team.id, environment: "LIVE" } as const;
    const load = (...names: string[]) =>
      transaction(team.em, (em) =>
        importContacts(
          em,
          team.vault,
          tenant,
          Readable.from([`email\n${names.map((name) => `${name}@example.com`).join("\n")}\n`]),
          {
            onRefused: assert.fail,
          },
        ),
      );
    await assert.rejects(load("held", "b", "c", "d"), { code: "quota_exceeded" });
    assert.equal(await used(), 1);
    for (let i = 0; i < 2; i++) await load("held", "b", "c");
    assert.equal(await used(), 3);
  });

  it("hold exactly under bulk calls and creates at once", async () => {
    await setLimits(team, { contactSlots: 57 });
    const [many, single] = await Promise.all([
      Promise.all(
        Array.from({ length: 6 }, (_, i) => bulk(Array.from({ length: 12 }, (_, j) => `b${i}-${j}@example.com`))),
      ),
      Promise.all(
        Array.from({ length: 20 }, (_, i) => client.post("/subscribers", { email: `b${i % 6}-${i}@example.com` })),
      ),
    ]);
    const { data } = (await client.get("/contacts", { query: { limit: 100 } })).body;
    const subscribers = (await client.get("/subscribers", { query: { limit: 100 } })).body.data;
    const distinct = new Set([...data, ...subscribers].map(({ email }: Json) => email));
    assert.equal(many.flatMap(outcomes).filter((status) => status === "created").length, data.length);
    assert.equal(single.filter(({ status }) => status === 201).length, subscribers.length);
    assert.equal(distinct.size, 57);
    assert.equal(await used(), 57);
  });
});
