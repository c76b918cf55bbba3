import assert from "node:assert/strict";
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
});
