import assert from "node:assert/strict";
import { fork, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { tmpdir } from "node:os";
import { text } from "node:stream/consumers";
import { joinStack } from "../../stack/join.ts";
import { connectToStack, lockDataDir } from "../../stack/lock.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { WORKERS_MAIN, workerSettings } from "../support/processes.ts";
import { stack } from "../support/stack.ts";

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

describe("A worker with --stack", () => {
  let dataDir: string;

  beforeEach(() => {
    dataDir = mkdtempSync(`${tmpdir()}/mailkeel-join-`);
  });
  afterEach(() => rmSync(dataDir, { recursive: true }));

  /** A stack on the folder, as far as a worker sees it: it has the settings of the stack of the tests. */
  async function runningStack() {
    const lock = await lockDataDir(dataDir);
    writeFileSync(
      `${dataDir}/stack.json`,
      JSON.stringify({ settings: await workerSettings(), health: (await stack()).health }),
    );
    return lock;
  }

  /** A worker whose shell names another database, and the health port of the stack. */
  async function joined() {
    const { PATH, NODE_COMPILE_CACHE } = process.env;
    const { port: HEALTH_PORT } = new URL((await stack()).health["api"] ?? "");
    const settings = { DATA_DIR: dataDir, DATABASE_URL: "postgres://nobody@127.0.0.1:1/none", HEALTH_PORT };
    const child = fork(`${import.meta.dirname}/../../stack/worker.ts`, ["--pool", "dispatch", "--stack"], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
      env: { PATH, NODE_COMPILE_CACHE, ...settings },
    });
    const exited = once(child, "exit");
    const [{ port }] = (await Promise.race([
      once(child, "message"),
      exited.then(([code]) => assert.fail(`the worker ended with ${code}`)),
    ])) as [{ port: number }];
    assert.equal((await fetch(`http://127.0.0.1:${port}/readyz`)).status, 200);
    return { exited };
  }

  it("works with the settings of the running stack, which waits for its end when it stops", async () => {
    const lock = await runningStack();
    try {
      const { exited } = await joined();
      // A worker that was killed.
      (await connectToStack(dataDir))?.destroy();
      await lock.dismiss(60_000);
      assert.deepEqual(await exited, [0, null]);
    } finally {
      await lock.release();
    }
  });

  it("ends when the stack was killed", async () => {
    const lock = await runningStack();
    const { exited } = await joined();
    await lock.release();
    assert.deepEqual(await exited, [0, null]);
  });

  it("says that no stack runs, or that it is not ready", async () => {
    const isRefused = (message: RegExp) => assert.rejects(joinStack({ DATA_DIR: dataDir }), { message });
    await isRefused(/No stack runs on .*Start one with `npm start`/);
    const lock = await lockDataDir(dataDir);
    try {
      await isRefused(/is starting or stopping/);
    } finally {
      await lock.release();
    }
  });
});
