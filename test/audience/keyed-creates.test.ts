import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { createSubscriber } from "../../domain/audience/subscribers.ts";
import { type ApiAnswer, api, codeOf } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
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

  /** Runs `work` while a transaction holds an address: a statement that makes a record with it waits. */
  async function whileAddressIsHeld(
    email: string,
    work: (waiting: () => Promise<unknown>, cancel: () => Promise<unknown>) => Promise<void>,
  ): Promise<void> {
    const holder = team.em.fork();
    await holder.begin();
    try {
      const fields = { email, firstName: null, lastName: null };
      await createSubscriber(holder, app.deps.vault, tenantOf(team), fields);
      const [row] = await holder.execute<{ pid: number }[]>("select pg_backend_pid() as pid");
      const blocked = "from pg_stat_activity where ? = any(pg_blocking_pids(pid))";
      const waiting = () =>
        eventually(async () => (await team.em.fork().execute(`select ${blocked}`, [row?.pid])).length === 1, {
          what: "the statement to wait",
        });
      await work(waiting, () => team.em.fork().execute(`select pg_cancel_backend(pid) ${blocked}`, [row?.pid]));
    } finally {
      await holder.rollback();
    }
  }

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

  it("answers request_in_flight at once while a copy makes the record, and its answer afterwards", async () => {
    const [email, idempotencyKey] = [uniqueEmail(), unique("k")];
    let first: Promise<ApiAnswer> | undefined;
    await whileAddressIsHeld(email, async (waiting) => {
      first = post("/subscribers", email, idempotencyKey);
      await waiting();
      assert.equal(codeOf(await post("/subscribers", email, idempotencyKey)), "request_in_flight");
    });
    const answer = (await first) ?? assert.fail();
    assert.equal(answer.status, 201, answer.text);
    assertReplay(answer, await post("/subscribers", email, idempotencyKey));
    assert.equal(codeOf(await post("/subscribers", uniqueEmail(), idempotencyKey)), "idempotency_key_reused");
  });

  it("keeps the key for the same request after a statement that was cancelled", async () => {
    const [email, idempotencyKey] = [uniqueEmail(), unique("k")];
    await whileAddressIsHeld(email, async (waiting, cancel) => {
      const first = post("/subscribers", email, idempotencyKey);
      await waiting();
      await cancel();
      assert.equal(codeOf(await first), "service_unavailable");
    });
    assert.equal(codeOf(await post("/subscribers", uniqueEmail(), idempotencyKey)), "idempotency_key_reused");
    const again = await post("/subscribers", email, idempotencyKey);
    assert.equal(again.status, 201, again.text);
    assertReplay(again, await post("/subscribers", email, idempotencyKey));
  });
});
