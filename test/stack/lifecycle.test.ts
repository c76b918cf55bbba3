import assert from "node:assert/strict";
import { randomBytes } from "node:crypto";
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from "node:fs";
import { Connection } from "@temporalio/client";
import { POOLS } from "../../stack/stack.ts";
import type { StackFile } from "../../stack/state.ts";
import { eventually } from "../support/eventually.ts";
import { testsOf } from "../support/long.ts";
import {
  clearStacks,
  leaveData,
  me,
  parentOf,
  query,
  runDemo,
  type SpawnedStack,
  spawnStack,
  stop,
  temporaryFolder,
} from "./support.ts";

const { it, longIt } = testsOf();

/** Children that are started again on a busy machine take longer than other waits. */
const BACK = { withinMs: 120_000 };

describe("the embedded stack", () => {
  let folder: string;
  let stack: SpawnedStack;
  let file: StackFile;

  const start = async () => {
    // Closed to the user Postgres runs as.
    stack = spawnStack({ dataDir: `${folder}/data`, env: { HOST: "0.0.0.0", HEALTH_HOST: "0.0.0.0" } });
    file = await stack.ready();
  };

  before(async () => {
    folder = temporaryFolder();
    await start();
  });
  after(async () => {
    await clearStacks();
    rmSync(folder, { recursive: true });
  });

  it("listens on loopback alone, except for the API, when HOST and HEALTH_HOST are other addresses", async () => {
    const { api, health, pids } = file;
    assert.deepEqual(listenersBeyond(stack.pids()), [{ pid: pids["api"], port: Number(new URL(api).port) }]);
    for (const url of Object.values(health)) assert.equal((await fetch(`${url}/healthz`)).status, 200, url);
  });

  it("comes up with everything, writes the addresses to stack.json, and answers the first request", async () => {
    assert.equal(statSync(`${stack.dataDir}/stack.json`).mode & 0o777, 0o600);
    assert.equal(statSync(`${stack.dataDir}/secrets.json`).mode & 0o777, 0o600);
    assert.deepEqual(Object.keys(file.pids).sort(), ["api", "postgres", "temporal", ...POOLS].sort());
    for (const key of Object.values(file.keys)) assert.equal((await me(file, key)).status, 200);
    assert.deepEqual(Object.keys(file.health).sort(), ["api", ...POOLS].sort());
    const urls = [file.api, file.database, `http://${file.temporal.address}`, file.temporal.ui ?? "", file.mail.smtp];
    assert.ok(file.webhooks.receiver);
    for (const url of [...urls, file.mail.api, file.webhooks.receiver, ...Object.values(file.health)]) {
      // Above are the ports of outgoing connections: one of those could take it before the server has it.
      assert.ok(Number(new URL(url).port) < 32_768, `${url} is on a port nothing else takes by chance`);
    }
    await eventually(() => stack.output().includes(`${file.api}/me`), { what: "the banner" });
    assert.ok(stack.output().includes(file.keys.live));
    assert.equal((await fetch(file.mail.api)).status, 200);
    assert.equal((await fetch(file.temporal.ui ?? "")).status, 200);
    const [row] = await query(file, "SELECT pg_encoding_to_char(encoding) AS encoding FROM pg_database");
    assert.equal(row?.["encoding"], "UTF8");
  });

  it("gives Temporal the search attributes, and keeps finished workflows for 30 days", async () => {
    const { address, namespace } = file.temporal;
    const connection = await Connection.connect({ address });
    const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
    for (const name of ["TeamId", "ResourceId", "SendStatus", "WebhookId", "NeedsOperator"]) {
      assert.ok(customAttributes && name in customAttributes, name);
    }
    const { config } = await connection.workflowService.describeNamespace({ namespace });
    assert.equal(Number(config?.workflowExecutionRetentionTtl?.seconds), 30 * 24 * 60 * 60);
    await connection.close();
  });

  it("refuses to run twice on one data folder, naming the other", async () => {
    const second = spawnStack({ dataDir: stack.dataDir });
    assert.equal(await second.exited, 1);
    assert.match(second.output(), /already running/);
    assert.ok(second.output().includes(file.api));
    assert.equal((await me(file)).status, 200);
  });

  it("shows a newsletter with its webhooks in the demo, which leaves no endpoint behind", async () => {
    const output = await runDemo(stack, "--recipients", "20");
    assert.match(output, /SENT: 20 sent/);
    assert.deepEqual(
      webhooksIn(output),
      ["completed", "scheduled", "started"].map((what) => `1 newsletter.${what}`),
    );
    const [, workflow = ""] = /^The workflow: +(\S+)$/m.exec(output) ?? [];
    assert.match(workflow, /\/namespaces\/default\/workflows\/send%2Fsend_\w+$/);
    assert.equal((await fetch(workflow)).status, 200);
    const endpoints = await fetch(`${file.api}/webhooks`, { headers: { "x-api-key": file.keys.live } });
    assert.deepEqual(((await endpoints.json()) as { data: unknown[] }).data, []);
  });

  it("starts killed children again, on the same port, and writes the new pids to stack.json", async () => {
    const before = stack.file();
    const { temporal = 0, postgres = 0, api = 0, maintenance = 0 } = before.pids;
    // A guard is killed instead of its program once: the program ends with it.
    for (const pid of [parentOf(temporal), postgres, api, maintenance]) process.kill(pid, "SIGKILL");
    const isBack = ([name, pid]: [string, number]) => stack.file().pids[name] !== pid;
    const killed = Object.entries({ temporal, postgres, api, maintenance });
    await eventually(() => killed.every(isBack), { what: "the children to be back", ...BACK });
    assert.deepEqual({ ...stack.file(), pids: {} }, { ...before, pids: {} });
    await eventually(async () => (await me(file)).status === 200, { what: "the API to answer", ...BACK });
    assert.match(stack.output(), /api stopped \(SIGKILL\)/);
  });

  longIt("ends with exit code 0 on SIGINT, leaves no process, and finds its data the next time", async () => {
    const findsItsData = await leaveData(file);
    assert.equal(await stop(stack, "SIGINT"), 0, stack.output());
    assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
    await start();
    await findsItsData(file);
  });

  longIt("says in a short last line that its secrets are those of another database", async () => {
    assert.equal(await stop(stack, "SIGINT"), 0, stack.output());
    const path = `${stack.dataDir}/secrets.json`;
    const secrets = readFileSync(path, "utf8");
    for (const [wrong, line] of [
      [
        { signingSecret: randomBytes(32).toString("base64") },
        /^SIGNING_SECRET: the key k1 is not the one .*secrets\.json/,
      ],
      [{ postgresPasswords: { owner: "x", application: "y" } }, /secrets\.json is not that of its database/],
    ] as const) {
      writeFileSync(path, JSON.stringify({ ...JSON.parse(secrets), ...wrong }));
      const again = spawnStack({ dataDir: stack.dataDir });
      assert.equal(await again.exited, 1);
      const [, refusal = ""] = again.output().split("Mailkeel could not start.\n");
      assert.match(refusal.trim().split("\n").at(-1) ?? "", line);
      assert.ok(refusal.length < 500, refusal);
    }
    writeFileSync(path, secrets);
    await start();
  });

  it("leaves nothing behind when start.mjs is killed", async () => {
    await stop(stack, "SIGKILL");
    assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
  });

  it("has kept keys, passwords and secrets out of its logs", () => {
    const { keys, database, migrationDatabase } = file;
    const { signingSecret, encryptionKeys } = JSON.parse(readFileSync(`${stack.dataDir}/secrets.json`, "utf8"));
    const passwords = [database, migrationDatabase].map((url) => new URL(url).password);
    for (const name of ["api", "postgres", "temporal", "mail", ...POOLS]) {
      const log = readFileSync(`${stack.dataDir}/logs/${name}.log`, "utf8");
      for (const secret of [...Object.values(keys), ...passwords, signingSecret, encryptionKeys]) {
        assert.ok(!log.includes(secret), `${name}.log`);
      }
    }
  });

  it("does not start when the secrets of its database are lost, and says so", async () => {
    rmSync(`${stack.dataDir}/secrets.json`);
    const again = spawnStack({ dataDir: stack.dataDir });
    assert.equal(await again.exited, 1);
    assert.match(again.output(), /secrets\.json/);
  });

  longIt("can be stopped in the middle of the start", async () => {
    const starting = spawnStack();
    const started = () => existsSync(`${starting.dataDir}/logs/postgres.log`);
    await eventually(started, { what: "Postgres to be started", ...BACK });
    assert.equal(await stop(starting, "SIGINT"), 0);
    assert.equal(existsSync(`${starting.dataDir}/stack.json`), false);
  });
});

/** How often each event came as a webhook, as the demo prints it; with none that had a wrong signature. */
function webhooksIn(output: string): string[] {
  const [, came = "", refused] = /^The webhooks: +(.*); (\d+) with a wrong signature$/m.exec(output) ?? [];
  assert.equal(refused, "0", output);
  return came.split(", ").sort();
}

/** Loopback addresses of both families, as /proc/net/tcp writes them. */
const LOOPBACK = /^(.{6}7F|0{24}01000000|0{16}FFFF0000.{6}7F)$/;

/** TCP sockets on which these processes listen for connections from other machines. */
function listenersBeyond(pids: readonly number[]): { pid: number; port: number }[] {
  const targetOf = (link: string) => {
    try {
      return readlinkSync(link);
    } catch {
      // The descriptor was closed meanwhile.
      return "";
    }
  };
  const owners = new Map(
    pids.flatMap((pid) => readdirSync(`/proc/${pid}/fd`).map((fd) => [targetOf(`/proc/${pid}/fd/${fd}`), pid])),
  );
  const sockets = ["tcp", "tcp6"].flatMap((table) => readFileSync(`/proc/net/${table}`, "utf8").split("\n").slice(1));
  return sockets.flatMap((line) => {
    const [, local = "", , state, , , , , , inode] = line.trim().split(/\s+/);
    const [address = "", port = ""] = local.split(":");
    const pid = owners.get(`socket:[${inode}]`);
    const isListening = state === "0A";
    return !isListening || pid === undefined || LOOPBACK.test(address)
      ? []
      : [{ pid, port: Number.parseInt(port, 16) }];
  });
}
