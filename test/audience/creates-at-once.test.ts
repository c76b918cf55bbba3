import assert from "node:assert/strict";
import { sql } from "kysely";
import { appRouter } from "../../api/router.ts";
import { kysely } from "../../db/orm.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, codeOf } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { makeTeam, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { makeEndpoint, PUBLIC_URL, tenantOf } from "../support/webhooks.ts";

describe("Creates of a team at once", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(appRouter);
  });
  after(() => app.close());
  beforeEach(async () => {
    team = await makeTeam();
  });

  const post = (path: string, email: string, idempotencyKey?: string): Promise<ApiAnswer> =>
    api(team.keys.live, app.base).post(path, { email, first_name: `of ${email}` }, { idempotencyKey });
  const emails = (count: number) => Array.from({ length: count }, () => uniqueEmail());

  for (const [path, type] of [
    ["/subscribers", "subscriber"],
    ["/contacts", "contact"],
  ] as const) {
    const assertMade = (given: readonly string[], answers: readonly ApiAnswer[]) => {
      for (const [i, { status, body, text }] of answers.entries()) {
        assert.equal(status, 201, text);
        assert.deepEqual([body.data.email, body.data.first_name], [given[i], `of ${given[i]}`]);
      }
    };

    it(`get each its own record, event, slot and answer under its key: POST ${path}`, async () => {
      await makeEndpoint(team, { url: PUBLIC_URL, events: [`${type}.created`] });
      await post(path, uniqueEmail());
      const given = emails(40);
      const keyed = given.slice(0, 20);
      const keys = new Map(keyed.map((email) => [email, unique("key")]));
      const answers = await Promise.all(given.map((email) => post(path, email, keys.get(email))));
      assertMade(given, answers);
      const { body: usage } = await api(team.keys.live, app.base).get("/usage");
      assert.equal(usage.data.limits["contacts.slots"].used, given.length + 1);
      const emitted = async () => {
        const events = await sql<{ email: string }>`
          select object::jsonb->>'email' as email from webhook_events
          where team_id = ${team.team.id} and type = ${`${type}.created`}`.execute(kysely(team.em.fork()));
        return events.rows.map(({ email }) => email);
      };
      await eventually(async () => (await emitted()).length > given.length, { what: "the events" });
      assert.deepEqual((await emitted()).filter((email) => given.includes(email)).sort(), [...given].sort());
      const replays = await Promise.all(keyed.map((email) => post(path, email, keys.get(email))));
      for (const [i, replay] of replays.entries()) {
        const first = answers[i] ?? assert.fail();
        assert.equal(replay.headers.get("idempotent-replayed"), "true");
        assert.deepEqual([replay.status, replay.text], [first.status, first.text]);
        assert.equal(replay.headers.get("location"), first.headers.get("location"));
      }
    });

    it(`make one record of an address and of a key, none of an erased address, and the others: POST ${path}`, async () => {
      const [twice = "", erased = "", first = "", second = "", ...others] = emails(14);
      await post(path, erased);
      await erasePerson(team.em, team.vault, tenantOf(team), erased, { dryRun: false, waitMs: 20_000 });
      const key = unique("key");
      const given: [email: string, key?: string][] = [
        [twice],
        [first, key],
        ...others.map((email): [string, string] => [email, email]),
        [second, key],
        [twice.toUpperCase()],
        [erased],
      ];
      const answers = await Promise.all(given.map(([email, each]) => post(path, email, each)));
      const codes = answers.map((answer) => (answer.status === 201 ? "made" : codeOf(answer)));
      assert.deepEqual(codes.slice(2, -3), Array(others.length).fill("made"));
      assert.equal(codes.at(-1), "person_erased");
      assert.deepEqual([codes.at(0), codes.at(-2)].sort(), ["made", "resource_already_exists"]);
      const rivals = [codes.at(1), codes.at(-3)].filter((code) => code !== "made");
      assert.equal(rivals.length, 1);
      assert.match(rivals[0] ?? "", /^(request_in_flight|idempotency_key_reused)$/);
    });
  }

  it("wait for no address but their own", async () => {
    const held = uniqueEmail();
    const holder = team.em.fork();
    await holder.begin();
    let waiting: Promise<ApiAnswer> | undefined;
    try {
      // Not through the API's own statement, which holds a part of the count of slots besides.
      await sql`insert into subscribers (id, team_id, environment, email)
        values (${newId("subscriber")}, ${team.team.id}, 'LIVE', ${held})`.execute(kysely(holder));
      const [first, ...others] = [held, ...emails(20)].map((email) => post("/subscribers", email));
      waiting = first;
      for (const { status, text } of await Promise.all(others)) assert.equal(status, 201, text);
    } finally {
      await holder.rollback();
    }
    const answer = await waiting;
    assert.equal(answer?.status, 201, answer?.text);
  });
});
