import assert from "node:assert/strict";
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { Connection } from "@temporalio/client";
import ipaddr from "ipaddr.js";
import { openDatabase } from "../../db/orm.ts";
import { isLoopback } from "../../domain/address-guard.ts";
import { POOLS } from "../../stack/stack.ts";
import type { StackFile } from "../../stack/state.ts";
import { until } from "../../stack/until.ts";
import { allGone, clearStacks, type SpawnedStack, spawnStack, temporaryFolder } from "./support.ts";

const BACK_TIMEOUT_MS = 60_000;

async function query(stack: StackFile, sql: string): Promise<Record<string, unknown>[]> {
  const orm = await openDatabase(stack.migrationDatabase, { poolMax: 1 });
  try {
    return await orm.em.getConnection().execute(sql);
  } finally {
    await orm.close(true);
  }
}

const me = (stack: StackFile, key = stack.keys.live) =>
  fetch(`${stack.api}/me`, { headers: { authorization: `Bearer ${key}` } });

async function stop({ process: child, exited, pids }: SpawnedStack, signal: NodeJS.Signals): Promise<number | null> {
  const running = pids();
  child.kill(signal);
  const code = await exited;
  await allGone(running);
  return code;
}

describe("the embedded stack once it is up", function () {
  this.timeout(180_000);
  let stack: SpawnedStack;
  before(() => {
    stack = spawnStack({ env: { HOST: "0.0.0.0", HEALTH_HOST: "0.0.0.0" } });
  });
  after(clearStacks);

  it("listens on loopback alone, except for the API, when HOST and HEALTH_HOST are other addresses", async () => {
    const { api, health, pids } = await stack.ready();
    const open = listeners(stack.pids());
    const beyond = open.filter(({ address }) => !isLoopback(address));
    assert.deepEqual(
      beyond.map(({ pid, port }) => ({ pid, port })),
      [{ pid: pids["api"], port: Number(new URL(api).port) }],
    );
    for (const url of Object.values(health)) assert.equal((await fetch(`${url}/healthz`)).status, 200, url);
  });

  it("comes up with everything, writes the addresses to stack.json, and answers the first request", async () => {
    const file = await stack.ready();
    assert.equal(statSync(`${stack.dataDir}/stack.json`).mode & 0o777, 0o600);
    assert.equal(statSync(`${stack.dataDir}/secrets.json`).mode & 0o777, 0o600);
    assert.deepEqual(Object.keys(file.pids).sort(), ["api", "postgres", "temporal", ...POOLS].sort());
    for (const key of [file.keys.live, file.keys.test, file.keys.cleanup]) {
      assert.equal((await me(file, key)).status, 200);
    }
    assert.deepEqual(Object.keys(file.health).sort(), ["api", ...POOLS].sort());
    const urls = [file.api, file.database, `http://${file.temporal.address}`, file.temporal.ui ?? "", file.mail.smtp];
    assert.ok(file.webhooks.receiver);
    for (const url of [...urls, file.mail.api, file.webhooks.receiver, ...Object.values(file.health)]) {
      // Above are the ports of outgoing connections: one of those could take it before the server has it.
      assert.ok(Number(new URL(url).port) < 32_768, `${url} is on a port nothing else takes by chance`);
    }
    await until("the banner", () => stack.output().includes(`${file.api}/me`), { timeoutMs: 5_000 });
    assert.ok(stack.output().includes(file.keys.live));
    assert.equal((await fetch(file.mail.api)).status, 200);
    assert.equal((await fetch(file.temporal.ui ?? "")).status, 200);
    const [row] = await query(file, "SELECT datcollate, pg_encoding_to_char(encoding) AS encoding FROM pg_database");
    assert.equal(row?.["encoding"], "UTF8");
  });

  it("gives Temporal the search attributes, and keeps finished workflows for 30 days", async () => {
    const { temporal } = await stack.ready();
    const connection = await Connection.connect({ address: temporal.address });
    const { namespace } = temporal;
    const { customAttributes } = await connection.operatorService.listSearchAttributes({ namespace });
    for (const name of ["TeamId", "ResourceId", "SendStatus", "WebhookId", "NeedsOperator"]) {
      assert.ok(customAttributes && name in customAttributes, name);
    }
    const { config } = await connection.workflowService.describeNamespace({ namespace });
    assert.equal(Number(config?.workflowExecutionRetentionTtl?.seconds), 30 * 24 * 60 * 60);
    await connection.close();
  });
});

describe("the embedded stack", function () {
  this.timeout(180_000);
  afterEach(clearStacks);

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    it(`ends with exit code 0 on ${signal}, leaves no process, and finds its data the next time`, async () => {
      const first = spawnStack();
      const before = await first.ready();
      await query(before, "CREATE TABLE kept AS SELECT 42 AS answer");
      assert.equal(await stop(first, signal), 0, first.output());
      assert.equal(existsSync(`${first.dataDir}/stack.json`), false);

      const second = spawnStack({ dataDir: first.dataDir });
      const after = await second.ready();
      assert.deepEqual([after.keys, after.team], [before.keys, before.team]);
      assert.deepEqual(await query(after, "SELECT answer FROM kept"), [{ answer: 42 }]);
      assert.equal((await me(after)).status, 200);
      const accounts = await query(after, "SELECT port FROM email_accounts");
      assert.deepEqual(
        accounts,
        [{ port: Number(new URL(after.mail.smtp).port) }],
        "the demo mails this start's catcher",
      );
    });
  }

  it("can be stopped in the middle of the start", async () => {
    const stack = spawnStack();
    const started = () => existsSync(`${stack.dataDir}/logs/postgres.log`);
    await until("Postgres to be started", started, { timeoutMs: BACK_TIMEOUT_MS });
    assert.equal(await stop(stack, "SIGINT"), 0);
    assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
  });

  it("leaves nothing behind when it is killed, and starts again at once", async () => {
    const killed = spawnStack();
    const before = await killed.ready();
    await query(before, "CREATE TABLE kept AS SELECT 42 AS answer");
    const running = killed.pids();
    // The supervisor is the parent of the guards; start.mjs, above it, is not what holds things together.
    const [supervisor] = running.filter((pid) => pid !== killed.process.pid);
    assert.ok(supervisor);
    process.kill(supervisor, "SIGKILL");
    const again = spawnStack({ dataDir: killed.dataDir });
    const after = await again.ready();
    await allGone(running);
    assert.deepEqual(await query(after, "SELECT answer FROM kept"), [{ answer: 42 }]);
    assert.equal((await me(after)).status, 200);
  });

  it("leaves nothing behind when start.mjs is killed", async () => {
    const stack = spawnStack();
    await stack.ready();
    await stop(stack, "SIGKILL");
    assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
  });

  it("starts a killed child again, on the same port, and writes its new pid to stack.json", async () => {
    const stack = spawnStack();
    const before = await stack.ready();
    for (const [name, pid] of Object.entries(before.pids)) {
      process.kill(pid, "SIGKILL");
      await until(`${name} to be back`, () => stack.file().pids[name] !== pid, { timeoutMs: BACK_TIMEOUT_MS });
    }
    const after = stack.file();
    assert.deepEqual({ ...after, pids: {} }, { ...before, pids: {} });
    await until("the API to answer", async () => (await me(after)).status === 200, { timeoutMs: BACK_TIMEOUT_MS });
    assert.match(stack.output(), /api stopped \(SIGKILL\)/);
    const guard = parentOf(after.pids["temporal"] ?? 0);
    process.kill(guard, "SIGKILL");
    await until("Temporal to be back", () => stack.file().pids["temporal"] !== after.pids["temporal"], {
      timeoutMs: BACK_TIMEOUT_MS,
    });
    assert.equal(await stop(stack, "SIGINT"), 0);
  });

  it("finds its data again in a folder that is closed to the user Postgres runs as", async () => {
    const closed = temporaryFolder();
    const dataDir = `${closed}/data`;
    const first = spawnStack({ dataDir });
    const before = await first.ready();
    assert.equal(await stop(first, "SIGINT"), 0);
    const after = await spawnStack({ dataDir }).ready();
    assert.deepEqual(after.keys, before.keys);
    assert.equal((await me(after)).status, 200);
    await clearStacks();
    rmSync(closed, { recursive: true });
  });

  it("refuses to run twice on one data folder, naming the other", async () => {
    const first = spawnStack();
    const { api } = await first.ready();
    const second = spawnStack({ dataDir: first.dataDir });
    assert.equal(await second.exited, 1);
    assert.match(second.output(), /already running/);
    assert.ok(second.output().includes(api));
    assert.equal((await me(first.file())).status, 200);
  });

  it("keeps keys, passwords and secrets out of its logs", async () => {
    const stack = spawnStack();
    const file = await stack.ready();
    const { keys, database, migrationDatabase } = file;
    for (const key of Object.values(keys)) await me(file, key);
    const { signingSecret, encryptionKeys } = JSON.parse(readFileSync(`${stack.dataDir}/secrets.json`, "utf8"));
    assert.equal(await stop(stack, "SIGINT"), 0);
    const passwords = [database, migrationDatabase].map((url) => new URL(url).password);
    for (const name of ["api", "postgres", "temporal", "mail", ...POOLS]) {
      const log = readFileSync(`${stack.dataDir}/logs/${name}.log`, "utf8");
      for (const secret of [...Object.values(keys), ...passwords, signingSecret, encryptionKeys]) {
        assert.ok(!log.includes(secret), `${name}.log`);
      }
    }
  });
});

function parentOf(pid: number): number {
  const status = readFileSync(`/proc/${pid}/status`, "utf8");
  return Number(/^PPid:\s+(\d+)$/m.exec(status)?.[1]);
}

/** TCP sockets on which these processes listen. */
function listeners(pids: readonly number[]): { pid: number; address: string; port: number }[] {
  const owners = new Map(
    pids.flatMap((pid) => readdirSync(`/proc/${pid}/fd`).map((fd) => [linkOf(`/proc/${pid}/fd/${fd}`), pid] as const)),
  );
  return ["tcp", "tcp6"].flatMap((table) =>
    readFileSync(`/proc/net/${table}`, "utf8")
      .split("\n")
      .slice(1)
      .flatMap((line) => {
        const [, local = "", , state, , , , , , inode] = line.trim().split(/\s+/);
        const pid = owners.get(`socket:[${inode}]`);
        if (state !== LISTENING || pid === undefined) return [];
        const [address = "", port = ""] = local.split(":");
        return [{ pid, address: addressOf(address), port: Number.parseInt(port, 16) }];
      }),
  );
}

/** The state of a listening socket in /proc/net/tcp. */
const LISTENING = "0A";

/** An address of /proc/net/tcp: words of four bytes, each in the byte order of the machine, which is little-endian. */
function addressOf(hex: string): string {
  const bytes = (hex.match(/.{8}/g) ?? []).flatMap((word) => [...Buffer.from(word, "hex").reverse()]);
  return ipaddr.fromByteArray(bytes).toString();
}

/** The target of a link, or nothing when the descriptor was closed meanwhile. */
function linkOf(path: string): string {
  try {
    return readlinkSync(path);
  } catch {
    return "";
  }
}
