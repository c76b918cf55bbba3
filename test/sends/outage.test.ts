import assert from "node:assert/strict";
import { appRouter } from "../../api/router.ts";
import { api } from "../support/api.ts";
import { serveRoutes, type TestApp } from "../support/app.ts";
import { confirm, makeSender, preview, tokenOf } from "../support/sending.ts";

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
