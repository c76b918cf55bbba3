import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { Subscriber } from "../../db/entities/audience.ts";
import { IdempotencyRecord } from "../../db/entities/idempotency.ts";
import { createSubscriber } from "../../domain/audience/subscribers.ts";
import { claimKey, type KeyedRequest, readAnswer } from "../../domain/idempotency.ts";
import { type ApiAnswer, api, codeOf } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { countStatements } from "../support/count-statements.ts";
import { makeTeam, setLimits, type TestTeam, unique, uniqueEmail } from "../support/factories.ts";
import { tenantOf } from "../support/webhooks.ts";

describe("A create under an Idempotency-Key", () => {
  let app: TestApp;
  let team: TestTeam;
  before(async () => {
    app = await serveRoutes(appRouter);
  });
  after(() => app.close());
  beforeEach(async () => {
    team = await makeTeam();
  });

  const post = (path: string, email: string, idempotencyKey: string) =>
    api(team.keys.live, app.base).post(path, { email }, { idempotencyKey });
  const assertReplay = (first: ApiAnswer, again: ApiAnswer) => {
    assert.equal(again.headers.get("idempotent-replayed"), "true");
    assert.deepEqual([again.status, again.text], [first.status, first.text]);
    assert.equal(again.headers.get("location"), first.headers.get("location"));
  };

  it("takes three round trips: the key's look-up, its claim, and the record with its answer", async () => {
    for (const path of ["/subscribers", "/contacts"]) {
      await post(path, uniqueEmail(), unique("warm"));
      const [email, idempotencyKey] = [uniqueEmail(), unique("k")];
      let first: ApiAnswer | undefined;
      const create = async () => {
        first = await post(path, email, idempotencyKey);
      };
      assert.equal(await countStatements(app, create), 3);
      assert.equal(first?.status, 201, first?.text);
      assertReplay(first ?? assert.fail(), await post(path, email, idempotencyKey));
      const taken = await post(path, email, unique("k2"));
      assert.equal(codeOf(taken), "resource_already_exists");
    }
  });

  it("remembers the answer also where the contact slots are counted in a transaction, and its refusal", async () => {
    await setLimits(team, { contactSlots: 3 });
    const answers: ApiAnswer[] = [];
    const emails = Array.from({ length: 4 }, () => uniqueEmail());
    for (const email of emails) answers.push(await post("/subscribers", email, email));
    assert.deepEqual(
      answers.map(({ status }) => status),
      [201, 201, 201, 402],
    );
    for (const [n, email] of emails.entries())
      assertReplay(answers[n] ?? assert.fail(), await post("/subscribers", email, email));
  });

  it("leaves no trace of an attempt that no longer holds the key", async () => {
    const tenant = tenantOf(team);
    const request: KeyedRequest = { tenant, keyHash: unique("hash"), fingerprint: "print", requestId: "req" };
    const claim = async () => {
      const claimed = await claimKey(team.em, request);
      return claimed.outcome === "claimed" ? claimed.handle : assert.fail();
    };
    const first = await claim();
    const longAgo = new Date(Date.now() - 3_600_000);
    await team.em.nativeUpdate(IdempotencyRecord, { teamId: tenant.teamId }, { lockedAt: longAgo });
    const second = await claim();
    const email = uniqueEmail();
    const attempt = (handle: typeof first) =>
      createSubscriber(
        team.em,
        app.deps.vault,
        tenant,
        { email, firstName: null, lastName: null },
        { ...handle, status: 201, before: '{"data":', after: "}" },
      );
    await assert.rejects(attempt(first));
    assert.equal(await team.em.fork().count(Subscriber, { email }), 0);
    const { id, record } = await attempt(second);
    assert.equal(await team.em.fork().count(Subscriber, { id }), 1);
    assert.deepEqual(await readAnswer(team.em, second), {
      status: 201,
      kind: "payload",
      payload: `{"data":${record.text}}`,
      requestId: "req",
    });
    await assert.rejects(attempt(second), "an attempt has one effect");
  });
});
