import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { clearStacks, runDemo, type SpawnedStack, spawnStack } from "./support.ts";

describe("npm run demo", () => {
  let stack: SpawnedStack;
  before(async () => {
    stack = spawnStack();
    await stack.ready();
  });
  after(clearStacks);

  it("sends a campaign twice: the account that failed works again the next time", async () => {
    for (let i = 0; i < 2; i++) {
      const output = await runDemo(stack, "--campaign", "--recipients", "600");
      assert.match(output, /second@demo\.example is refused from now on/);
      assert.match(output, /SENT: 600 sent$/m, output);
      assert.match(output, /600 mails to 600 people/);
      const came = /^The webhooks: +(.*);/m.exec(output)?.[1]?.split(", ").sort();
      assert.deepEqual(
        came,
        ["completed", "scheduled", "started"].map((what) => `1 campaign.${what}`),
        output,
      );
      assert.match(output, /^The workflow: .*send_\w+$/m);
    }
  });

  it("leaves webhooks out while another demo receives them, and takes a file for the newsletter alone", async () => {
    const other = createServer().listen(Number(new URL(stack.file().webhooks.receiver ?? "").port), "127.0.0.1");
    await once(other, "listening");
    try {
      const output = await runDemo(stack, "--recipients", "20");
      assert.match(output, /left out: .*EADDRINUSE/);
      assert.match(output, /SENT: 20 sent/);
    } finally {
      other.close();
    }
    const refused = runDemo(stack, "--campaign", "--csv", "people.csv");
    await assert.rejects(refused, /'--csv <file>' cannot be used with/);
  });
});
