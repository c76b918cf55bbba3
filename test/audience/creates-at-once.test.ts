import assert from "node:assert/strict";
import { sql } from "kysely";
import { kysely } from "../../db/orm.ts";
import { erasePerson } from "../../domain/erasure/erase.ts";
import { newId } from "../../domain/ids.ts";
import { type ApiAnswer, api, codeOf } from "../support/api.ts";
import { makeTeam, type TestTeam, tenantOf, uniqueEmail } from "../support/factories.ts";

describe("Creates of a team at once", () => {
  let team: TestTeam;
  beforeEach(async () => {
    team = await makeTeam();
  });

  const post = (path: string, email: string, idempotencyKey?: string): Promise<ApiAnswer> =>
    api(team.keys.live).post(path, { email, first_name: `of ${email}` }, { idempotencyKey });
  const emails = (count: number) => Array.from({ length: count }, () => uniqueEmail());

  for (const path of ["/subscribers", "/contacts"]) {
    it(`make each its own record, one of an address and none of an erased one, and remember the answers of keys: POST ${path}`, async () => {
      const [twice = "", erased = "", ...others] = emails(14);
      await post(path, erased);
      await erasePerson(team.em, team.vault, tenantOf(team), erased, { dryRun: false, waitMs: 20_000 });
      const given = [...others, twice, twice.toUpperCase(), erased];
      const [keyed, plain] = [given.slice(4), given.slice(0, 4)];
      const askKeyed = () => Promise.all(keyed.map((email) => post(path, email, email)));
      const [ofPlain, ofKeyed] = await Promise.all([Promise.all(plain.map((email) => post(path, email))), askKeyed()]);
      const answers = [...ofPlain, ...ofKeyed];
      for (const [i, email] of others.entries()) {
        const { status, body, text } = answers[i] ?? assert.fail();
        assert.equal(status, 201, text);
        assert.deepEqual([body.data.email, body.data.first_name], [email, `of ${email}`]);
      }
      const codes = answers.slice(-3).map((answer) => (answer.status === 201 ? "made" : codeOf(answer)));
      assert.deepEqual(codes.slice(0, 2).sort(), ["made", "resource_already_exists"]);
      assert.equal(codes.at(-1), "person_erased");
      const texts = (of: ApiAnswer[]) => of.map(({ text }) => text);
      assert.deepEqual(texts(await askKeyed()), texts(ofKeyed));
    });
  }

  it("wait for no address but their own", async () => {
    const held = uniqueEmail();
    const holder = team.em.fork();
    await holder.begin();
    let waiting: Promise<ApiAnswer> | undefined;
    try {
      await sql`insert into subscribers (id, team_id, environment, email)
        values (${newId("subscriber")}, ${team.team.id}, 'LIVE', ${held})`.execute(kysely(holder));
      const [first, ...others] = [held, ...emails(6)].map((email) => post("/subscribers", email));
      waiting = first;
      for (const { status, text } of await Promise.all(others)) assert.equal(status, 201, text);
    } finally {
      await holder.rollback();
    }
    const answer = await waiting;
    assert.equal(answer?.status, 201, answer?.text);
  });
});
