import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import { text } from "node:stream/consumers";
import { listenLocally } from "../support/listen-locally.ts";
import { WORKERS_MAIN, workerSettings } from "../support/processes.ts";

async function refusal(args: string[], settings: Record<string, string> = {}): Promise<string> {
  const child = spawn(process.execPath, [WORKERS_MAIN, ...args], {
    stdio: ["ignore", "ignore", "pipe"],
    env: { ...(await workerSettings()), ...settings },
  });
  const [said, [code]] = await Promise.all([text(child.stderr), once(child, "exit")]);
  assert.equal(code, 1, said);
  assert.doesNotMatch(said, /^ +at /m, "shows a stack trace");
  return said;
}

describe("A worker that cannot start", () => {
  it("names the pools when --pool is missing, or names no pool", async () => {
    const wrong = [
      ["--pool", "nope"],
      ["--poll", "sends"],
    ];
    for (const said of await Promise.all(wrong.map((args) => refusal(args)))) {
      assert.match(said, /--pool.*sends, dispatch.*maintenance/);
    }
  });

  it("names TEMPORAL_NAMESPACE when Temporal has no such namespace", async () => {
    assert.match(await refusal(["--pool", "dispatch"], { TEMPORAL_NAMESPACE: "nope" }), /TEMPORAL_NAMESPACE.*"nope"/);
  });

  for (const [pool, setting, others] of [
    ["dispatch", "HEALTH_PORT", {}],
    ["intake", "INTAKE_SMTP_PORT", { RETURN_PATH_DOMAIN: "bounces.example" }],
  ] as const) {
    it(`names ${setting} when that port is in use`, async () => {
      const server = createServer();
      const port = await listenLocally(server);
      try {
        const said = await refusal(["--pool", pool], { [setting]: String(port), ...others });
        assert.match(said, new RegExp(`${setting}: port ${port} .*in use`));
      } finally {
        server.close();
      }
    });
  }
});
