import assert from "node:assert/strict";
import { once } from "node:events";
import { createServer } from "node:http";
import { clearStacks, runDemo, spawnStack } from "./support.ts";

describe("npm run demo", () => {
  afterEach(clearStacks);

  it("sends a newsletter, receives its webhooks signed, and leaves no endpoint behind", async () => {
    const stack = spawnStack();
    const { api, keys, webhooks } = await stack.ready();
    const endpoints = async () => {
      const answer = await fetch(`${api}/webhooks`, { headers: { "x-api-key": keys.live } });
      return ((await answer.json()) as { data: unknown[] }).data;
    };
    const output = await runDemo(stack, "--recipients", "20");
    assert.match(output, /SENT: 20 sent/);
    const names = ["scheduled", "started", "completed"].map((what) => `1 newsletter.${what}`);
    const [, came = "", refused] = /^The webhooks: +(.*); (\d+) with a wrong signature$/m.exec(output) ?? [];
    assert.deepEqual(came.split(", ").sort(), names.sort(), output);
    assert.equal(refused, "0");
    const [, workflow = ""] = /^The workflow: +(\S+)$/m.exec(output) ?? [];
    assert.match(workflow, /\/namespaces\/default\/workflows\/send%2Fsend_\w+$/);
    assert.equal((await fetch(workflow)).status, 200);
    assert.deepEqual(await endpoints(), []);

    const everything = await runDemo(stack, "--recipients", "20", "--events", "*");
    assert.match(everything, /20 email\.sent/);

    const other = createServer().listen(Number(new URL(webhooks.receiver ?? "").port), "127.0.0.1");
    await once(other, "listening");
    try {
      const without = await runDemo(stack, "--recipients", "20");
      assert.match(without, /left out: .*EADDRINUSE/);
      assert.match(without, /SENT: 20 sent/);
    } finally {
      other.close();
    }
  });

  it("sends a campaign over two accounts, one of which fails half-way: every contact gets one mail", async () => {
    const stack = spawnStack();
    await stack.ready();
    await assert.rejects(runDemo(stack, "--campaign", "--csv", "people.csv"), /'--csv <file>' cannot be used with/);
    // Twice: the account that failed works again the next time.
    for (let i = 0; i < 2; i++) {
      const output = await runDemo(stack, "--campaign", "--recipients", "600");
      assert.match(output, /second@demo\.example is refused from now on/);
      assert.match(output, /SENT: 600 sent$/m, output);
      assert.match(output, /600 mails to 600 people/);
      const came = /^The webhooks: +(.*);/m.exec(output)?.[1]?.split(", ").sort();
      const names = ["scheduled", "started", "completed"].map((what) => `1 campaign.${what}`);
      assert.deepEqual(came, names.sort(), output);
      assert.match(output, /^The workflow: .*send_\w+$/m);
    }
  });

  it("runs without webhooks when the service may only reach other receivers", async () => {
    const stack = spawnStack({ env: { WEBHOOK_ALLOWED_HOSTS: "localhost:4000" } });
    assert.equal((await stack.ready()).webhooks.receiver, null);
    const output = await runDemo(stack, "--recipients", "20");
    assert.match(output, /left out: .*WEBHOOK_ALLOWED_HOSTS/);
    assert.match(output, /SENT: 20 sent/);
  });
});
