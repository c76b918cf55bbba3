import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { randomInt } from "node:crypto";
import { existsSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync } from "node:fs";
import { Connection } from "@temporalio/client";
import ipaddr from "ipaddr.js";
import { openDatabase } from "../../db/orm.ts";
import { isLoopback } from "../../domain/address-guard.ts";
import { POOLS } from "../../stack/stack.ts";
import type { StackFile } from "../../stack/state.ts";
import { until } from "../../stack/until.ts";
import { allGone, clearStacks, type SpawnedStack, spawnStack, temporaryFolder } from "./support.ts";

const ROOT = `${import.meta.dirname}/../..`;
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

const drafts = (folder: string) => readdirSync(folder).filter((name) => name.endsWith(".tmp"));

/** Runs a process that is killed in `writeJson`: it waits for its draft without giving the write its turn. */
function dieInWrite(file: string): void {
  const script = `
    import { readdirSync } from "node:fs";
    import { dirname } from "node:path";
    import { writeJson } from "./stack/state.ts";
    const [file] = process.argv.slice(1);
    void writeJson(file, {});
    while (!readdirSync(dirname(file)).some((name) => name.endsWith(".tmp")));
    process.kill(process.pid, "SIGKILL");`;
  const { signal } = spawnSync(process.execPath, ["--input-type=module", "-e", script, file], { cwd: ROOT });
  assert.equal(signal, "SIGKILL");
}

async function stop({ process: child, exited, pids }: SpawnedStack, signal: NodeJS.Signals): Promise<number | null> {
  const running = pids();
  child.kill(signal);
  const code = await exited;
  await allGone(running);
  return code;
}

describe("the embedded stack", () => {
  /** Closed to the user Postgres runs as. */
  let folder: string;
  let current: SpawnedStack | undefined;

  /** The stack of all tests, started again by the next one whenever a test has ended it: a start takes seconds of CPU. */
  async function running(): Promise<{ stack: SpawnedStack; file: StackFile }> {
    current ??= spawnStack({ dataDir: `${folder}/data`, env: { HOST: "0.0.0.0", HEALTH_HOST: "0.0.0.0" } });
    return { stack: current, file: await current.ready() };
  }
  async function end(signal: NodeJS.Signals): Promise<{ stack: SpawnedStack; code: number | null }> {
    const { stack } = await running();
    current = undefined;
    return { stack, code: await stop(stack, signal) };
  }
  /** What the next start must find. @returns a check of it */
  async function leaveData(): Promise<() => Promise<void>> {
    const { file: before } = await running();
    const answer = randomInt(1_000_000);
    await query(before, `DROP TABLE IF EXISTS kept; CREATE TABLE kept AS SELECT ${answer} AS answer`);
    return async () => {
      const { file: after } = await running();
      assert.deepEqual([after.keys, after.team], [before.keys, before.team]);
      assert.deepEqual(await query(after, "SELECT answer FROM kept"), [{ answer }]);
      assert.equal((await me(after)).status, 200);
      const accounts = await query(after, "SELECT port FROM email_accounts");
      const { port } = new URL(after.mail.smtp);
      assert.deepEqual(accounts, [{ port: Number(port) }], "the demo mails this start's catcher");
    };
  }

  before(() => {
    folder = temporaryFolder();
  });
  after(async () => {
    await clearStacks();
    rmSync(folder, { recursive: true });
  });

  it("listens on loopback alone, except for the API, when HOST and HEALTH_HOST are other addresses", async () => {
    const { stack, file } = await running();
    const { api, health, pids } = file;
    const open = listeners(stack.pids());
    const beyond = open.filter(({ address }) => !isLoopback(address));
    assert.deepEqual(
      beyond.map(({ pid, port }) => ({ pid, port })),
      [{ pid: pids["api"], port: Number(new URL(api).port) }],
    );
    for (const url of Object.values(health)) assert.equal((await fetch(`${url}/healthz`)).status, 200, url);
  });

  it("comes up with everything, writes the addresses to stack.json, and answers the first request", async () => {
    const { stack, file } = await running();
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
    await until("the banner", () => stack.output().includes(`${file.api}/me`), { timeoutMs: 20_000 });
    assert.ok(stack.output().includes(file.keys.live));
    assert.equal((await fetch(file.mail.api)).status, 200);
    assert.equal((await fetch(file.temporal.ui ?? "")).status, 200);
    const [row] = await query(file, "SELECT datcollate, pg_encoding_to_char(encoding) AS encoding FROM pg_database");
    assert.equal(row?.["encoding"], "UTF8");
  });

  it("gives Temporal the search attributes, and keeps finished workflows for 30 days", async () => {
    const { temporal } = (await running()).file;
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

  it("refuses to run twice on one data folder, naming the other", async () => {
    const { stack, file } = await running();
    const second = spawnStack({ dataDir: stack.dataDir });
    assert.equal(await second.exited, 1);
    assert.match(second.output(), /already running/);
    assert.ok(second.output().includes(file.api));
    assert.equal((await me(file)).status, 200);
  });

  it("starts a killed child again, on the same port, and writes its new pid to stack.json", async () => {
    const { stack, file: before } = await running();
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
  });

  for (const signal of ["SIGINT", "SIGTERM"] as const) {
    it(`ends with exit code 0 on ${signal}, leaves no process, and finds its data the next time`, async () => {
      const findsItsData = await leaveData();
      const { stack, code } = await end(signal);
      assert.equal(code, 0, stack.output());
      assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
      await findsItsData();
    });
  }

  it("leaves nothing behind when it is killed, also in the middle of a write, and starts again at once", async () => {
    const findsItsData = await leaveData();
    const { stack } = await running();
    const pids = stack.pids();
    // The supervisor is the parent of the guards; start.mjs, above it, is not what holds things together.
    const [supervisor] = pids.filter((pid) => pid !== stack.process.pid);
    assert.ok(supervisor);
    process.kill(supervisor, "SIGKILL");
    current = undefined;
    dieInWrite(`${stack.dataDir}/stack.json`);
    assert.equal(drafts(stack.dataDir).length, 1);
    await running();
    assert.deepEqual(drafts(stack.dataDir), []);
    await allGone(pids);
    await findsItsData();
  });

  it("keeps keys, passwords and secrets out of its logs", async () => {
    const { file } = await running();
    const { keys, database, migrationDatabase } = file;
    for (const key of Object.values(keys)) await me(file, key);
    const { stack } = await end("SIGINT");
    const { signingSecret, encryptionKeys } = JSON.parse(readFileSync(`${stack.dataDir}/secrets.json`, "utf8"));
    const passwords = [database, migrationDatabase].map((url) => new URL(url).password);
    for (const name of ["api", "postgres", "temporal", "mail", ...POOLS]) {
      const log = readFileSync(`${stack.dataDir}/logs/${name}.log`, "utf8");
      for (const secret of [...Object.values(keys), ...passwords, signingSecret, encryptionKeys]) {
        assert.ok(!log.includes(secret), `${name}.log`);
      }
    }
  });

  it("leaves nothing behind when start.mjs is killed", async () => {
    const { stack } = await end("SIGKILL");
    assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
  });

  it("can be stopped in the middle of the start", async () => {
    const stack = spawnStack();
    const started = () => existsSync(`${stack.dataDir}/logs/postgres.log`);
    await until("Postgres to be started", started, { timeoutMs: BACK_TIMEOUT_MS });
    assert.equal(await stop(stack, "SIGINT"), 0);
    assert.equal(existsSync(`${stack.dataDir}/stack.json`), false);
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
