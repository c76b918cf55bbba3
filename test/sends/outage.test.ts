import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { eventually } from "../support/eventually.ts";
import { pidOf } from "../support/processes.ts";
import { confirm, freshKey, makeSender, preview, tokenOf, untilStatus } from "../support/sending.ts";

describe("While Temporal does not answer", () => {
  let lonely: TestApp;

  before(async () => {
    // No process listens on port 1.
    lonely = await serveRoutes(appRouter, { changes: { TEMPORAL_ADDRESS: "127.0.0.1:1" } });
  });
  after(() => lonely.close());

  it("the API serves reads and drafts, and answers previews and confirms with 503 and Retry-After", async () => {
    const sender = await makeSender();
    const token = await tokenOf(sender);
    const client = api(sender.keys.live, lonely.base);
    assert.equal((await client.get(`/newsletters/${sender.newsletterId}`)).status, 200);
    const patched = await client.patch(`/newsletters/${sender.newsletterId}`, { name: "Renamed" });
    assert.equal(patched.status, 200, patched.text);
    for (const answer of [await preview({ ...sender, client }), await confirm({ ...sender, client }, token)]) {
      assert.equal(answer.status, 503, answer.text);
      assert.equal(answer.body.error.code, "service_unavailable");
      assert.ok(Number(answer.headers.get("retry-after")) > 0);
    }
  });

  it("the API still gives the refusals that it reads from Postgres", async () => {
    const sender = await makeSender();
    const client = api(sender.keys.live, lonely.base);
    const refused = await confirm({ ...sender, client }, "nonsense");
    assert.equal(refused.body.error.code, "confirmation_invalid");
    const test = await preview({ ...sender, client: api(sender.keys.test, lonely.base) });
    assert.equal(test.body.error.code, "send_not_permitted");
  });
});

describe("While no sends worker runs", () => {
  it("the API answers 503, and the same request under the same Idempotency-Key succeeds later", async () => {
    const sender = await makeSender();
    const keys = [freshKey(), freshKey()] as const;
    const worker = pidOf("sends");
    process.kill(worker, "SIGSTOP");
    try {
      const refused = await preview(sender, keys[0]);
      assert.equal(refused.status, 503, refused.text);
      assert.ok(Number(refused.headers.get("retry-after")) > 0);
    } finally {
      process.kill(worker, "SIGCONT");
    }
    // The worker continues in the middle of a task that Temporal may have given up: one more 503 can come first.
    const succeeded = async () => {
      const answer = await preview(sender, keys[0]);
      return answer.status === 200 ? answer : undefined;
    };
    const answer = await eventually(succeeded, { what: "the preview", everyMs: 500 });
    assert.ok(answer);
    const armed = await confirm(sender, answer.body.data.confirmation.token, keys[1]);
    assert.equal(armed.status, 202, armed.text);
    await untilStatus(sender, ["SENT"]);
  });
});
