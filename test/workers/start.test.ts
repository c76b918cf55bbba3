import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { type AddressInfo, createServer } from "node:net";
import { text } from "node:stream/consumers";
import { WORKERS_MAIN, workerSettings } from "../support/processes.ts";

/** What a worker says that cannot start. */
async function refusal(args: string[], settings: Record<string, string> = {}): Promise<string> {
  const child = spawn(process.execPath, [WORKERS_MAIN, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
    env: {
      ...(await workerSettings()),
      ...settings,
    },
  });
  const [said, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
  assert.equal(code, 1, said);
  assert.doesNotMatch(said, /^ +at /m, "shows a stack trace");
  return said;
}

describe("A worker that cannot start", function () {
  this.timeout(120_000);

  it("names the pools when it is told none, or one that there is not", async () => {
    const wrong = [["--pool"], ["--pool", "nope"], ["--poll", "sends"]];
    for (const said of await Promise.all(wrong.map((args) => refusal(args)))) {
      assert.match(said, /--pool.*sends, dispatch.*maintenance/);
    }
  });

  it("names TEMPORAL_NAMESPACE when Temporal has no such namespace", async () => {
    assert.match(await refusal(["--pool", "dispatch"], { TEMPORAL_NAMESPACE: "nope" }), /TEMPORAL_NAMESPACE.*"nope"/);
  });

  it("names HEALTH_PORT when that port is in use", async () => {
    const server = createServer();
    await once(server.listen(0, "127.0.0.1"), "listening");
    const { port } = server.address() as AddressInfo;
    try {
      const said = await refusal(["--pool", "dispatch"], { HEALTH_PORT: String(port) });
      assert.match(said, new RegExp(`HEALTH_PORT: port ${port} .*in use`));
    } finally {
      server.close();
    }
  });
});
