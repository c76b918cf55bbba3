import assert from "node:assert/strict";
import { api } from "../support/api.ts";
import { makeTeam } from "../support/factories.ts";

const MAX_ANSWER_BYTES = 2 * 1024 * 1024;

describe("The largest answer", () => {
  // As JSON each of these characters takes two bytes, or six.
  for (const [what, body] of [
    ["quotes", '"'.repeat(917_000)],
    ["control characters", "\u0001".repeat(305_000)],
  ] as const) {
    it(`has at most 2 MiB, and is kept and replayed to the byte: a newsletter of ${what}`, async () => {
      const client = api((await makeTeam()).keys.live);
      const ask = () => client.post("/newsletters", { name: "Large", body }, { idempotencyKey: "k" });
      const first = await ask();
      assert.equal(first.status, 201, first.text.slice(0, 500));
      assert.ok(Buffer.byteLength(first.text) <= MAX_ANSWER_BYTES);
      const again = await ask();
      assert.equal(again.headers.get("idempotent-replayed"), "true");
      assert.ok(again.text === first.text);

      const path = `/newsletters/${first.body.data.id}`;
      const changes = { name: "漢".repeat(200), subject: "漢".repeat(998), from_name: "漢".repeat(200) };
      const changed = await client.patch(path, changes);
      assert.equal(changed.status, 200, changed.text.slice(0, 500));
      assert.ok(Buffer.byteLength(changed.text) <= MAX_ANSWER_BYTES);
    });
  }

  it("refuses a newsletter whose body would make an answer of more than 2 MiB", async () => {
    const client = api((await makeTeam()).keys.live);
    const answer = await client.post("/newsletters", { name: "Large", body: '"'.repeat(920_000) });
    assert.equal(answer.status, 400, answer.text.slice(0, 500));
    assert.deepEqual(
      [answer.body.error.param, answer.body.error.message],
      [
        "body",
        "body must be at most 1835008 bytes long as JSON; it has 1840002: use fewer quotes, backslashes and control characters.",
      ],
    );
  });
});
