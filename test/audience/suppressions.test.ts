import assert from "node:assert/strict";
import { kysely } from "../../db/orm.ts";
import { suppress } from "../../domain/audience/suppressions.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiClient, api, assertFieldRefused, type Json } from "../support/api.ts";
import { makeTeam, type TestTeam, uniqueEmail } from "../support/factories.ts";

describe("Suppressions", () => {
  let team: TestTeam;
  let client: ApiClient;
  let cleanup: ApiClient;
  before(async () => {
    team = await makeTeam();
    client = api(team.keys.live);
    cleanup = api(team.keys.cleanup);
  });

  const add = (...emails: string[]) => client.post("/suppressions", { emails });
  const read = (email: string) => client.get(`/suppressions/${encodeURIComponent(email)}`);

  it("adds new addresses and leaves suppressed ones unchanged", async () => {
    const [one, two] = [uniqueEmail(), uniqueEmail()];
    const first = await add(` \u200B${one.toUpperCase()}\u00AD`, one);
    assert.equal(first.status, 200);
    assert.deepEqual(first.body.data, { object: "suppression_batch", added: [one], already_suppressed: [] });
    const before = (await read(one)).body.data;
    const second = await add(two, one);
    assert.deepEqual(second.body.data, { object: "suppression_batch", added: [two], already_suppressed: [one] });
    assert.deepEqual((await read(one)).body.data, before);
    assert.equal(before.reason, "MANUAL");
  });

  it("is safe when the same batch is posted many times at once", async () => {
    const emails = Array.from({ length: 20 }, () => uniqueEmail());
    const answers = await Promise.all(
      [emails, emails.toReversed(), emails, emails.toReversed()].map((batch) => add(...batch)),
    );
    assert.deepEqual(
      answers.map(({ status }) => status),
      [200, 200, 200, 200],
    );
    assert.equal(
      answers.reduce((sum, { body }) => sum + body.data.added.length, 0),
      20,
    );
  });

  for (const [what, body, param] of [
    ["none", { emails: [] }, "emails"],
    ["101", { emails: Array.from({ length: 101 }, (_, i) => `a${i}@example.com`) }, "emails"],
    ["text that is no address", { emails: ["a@example.com", "nobody"] }, "emails[1]"],
    ["another reason than MANUAL", { emails: ["a@example.com"], reason: "bounce:hard" }, "reason"],
  ] as const) {
    it(`refuses ${what}, and names the field`, async () => {
      assertFieldRefused(await client.post("/suppressions", body), param);
    });
  }

  it("changes neither subscribers nor their subscriptions", async () => {
    const { id, email } = (await client.post("/subscribers", { email: uniqueEmail() })).body.data;
    const list = (await client.post("/lists", { name: "x" })).body.data;
    await client.post(`/lists/${list.id}/subscribers`, { subscriber_ids: [id] });
    const before = (await client.get(`/subscribers/${id}`)).body.data;
    await add(email);
    assert.deepEqual((await client.get(`/subscribers/${id}`)).body.data, before);
  });

  it("answers 404 for an address that is not suppressed, and 400 for what can be none", async () => {
    for (const other of [uniqueEmail(), "nobody"]) {
      const { status, body } = await read(other);
      assert.equal(status, 404);
      assert.equal(body.error.code, "not_found");
    }
    assert.equal((await read("ab")).status, 400);
    assert.equal((await read("a".repeat(321))).status, 400);
  });

  it("filters by address and by reason, in any case", async () => {
    const email = uniqueEmail();
    await suppress(team.em, { teamId: team.team.id, environment: "LIVE" }, [email], "bounce:soft");
    for (const query of [{ email: email.toUpperCase() }, { reason: "bounce:soft" }, { reason: "Bounce:SOFT" }]) {
      const { body } = await client.get("/suppressions", { query });
      assert.deepEqual(
        body.data.map((row: Json) => row.email),
        [email],
      );
      assert.ok(body.meta.synced_through);
    }
  });

  it("lifts one of any reason, does not echo the address, and keeps the history", async () => {
    const email = uniqueEmail();
    await suppress(team.em, { teamId: team.team.id, environment: "LIVE" }, [email], "UNSUBSCRIBED");
    const { id } = (await read(email)).body.data;
    const answer = await cleanup.delete(`/suppressions/${id}`);
    assert.equal(answer.status, 200);
    assert.deepEqual(answer.body.data, { object: "suppression", id, deleted: true });
    assert.ok(!answer.text.includes(email));
    assert.equal((await read(email)).status, 404);
    assert.equal((await cleanup.delete(`/suppressions/${id}`)).status, 404);
    assert.deepEqual((await add(email)).body.data.added, [email]);
  });
});

describe("Unsubscribes", () => {
  it("lists and filters the history, newest first, without updated_since", async () => {
    const team = await makeTeam();
    const client = api(team.keys.live);
    const rows = ["a", "b", "c"].map((name, i) => ({
      id: newId("unsubscribe"),
      team_id: team.team.id,
      environment: "LIVE" as const,
      email: `${name}@example.com`,
      reason: "UNSUBSCRIBED",
      source: i === 0 ? "one_click" : "link",
      campaign_id: `nl_${name}`,
      unsubscribed_at: new Date(Date.UTC(2026, 0, i + 1)),
    }));
    await kysely(team.em).insertInto("unsubscribes").values(rows).execute();
    const names = async (query: Record<string, string> = {}) =>
      (await client.get("/unsubscribes", { query })).body.data.map(({ campaign_id }: Json) => campaign_id);
    assert.deepEqual(await names(), ["nl_c", "nl_b", "nl_a"]);
    assert.deepEqual(await names({ order: "asc", sort: "created_at" }), ["nl_a", "nl_b", "nl_c"]);
    assert.deepEqual(await names({ email: "B@example.com" }), ["nl_b"]);
    assert.deepEqual(await names({ source: "one_click" }), ["nl_a"]);
    assert.deepEqual(await names({ campaign_id: "nl_c" }), ["nl_c"]);
    const [first] = (await client.get("/unsubscribes", { query: { limit: 1 } })).body.data;
    assert.deepEqual(
      { ...first, created_at: 0 },
      {
        object: "unsubscribe",
        id: rows[2]?.id,
        email: "c@example.com",
        reason: "UNSUBSCRIBED",
        source: "link",
        campaign_id: "nl_c",
        unsubscribed_at: "2026-01-03T00:00:00.000Z",
        created_at: 0,
      },
    );
    const refused = await client.get("/unsubscribes", { query: { updated_since: "2026-01-01T00:00:00Z" } });
    assert.equal(refused.body.error.code, "unsupported_parameter");
    assert.equal((await client.get("/unsubscribes")).body.meta.synced_through, undefined);
  });
});
