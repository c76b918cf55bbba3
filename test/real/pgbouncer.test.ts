import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { promisify } from "node:util";
import { reservePorts } from "../../stack/infra.ts";
import { clearStacks, runDemo, spawnStack } from "../stack/support.ts";
import { eventually } from "../support/eventually.ts";
import { openStackDatabase, unique } from "../support/factories.ts";
import { stack } from "../support/stack.ts";
import { needs } from "./programs.ts";

const RECIPIENTS = 300;

/** PgBouncer refuses to run as root: then it runs as this user. */
const USER = "nobody";

async function userIds(): Promise<{ uid?: number; gid?: number }> {
  if (process.getuid?.() !== 0) return {};
  const id = async (flag: string) => Number((await promisify(execFile)("id", [flag, USER])).stdout);
  return { uid: await id("-u"), gid: await id("-g") };
}

describe("The service behind PgBouncer in session pooling", function () {
  this.timeout(180_000);
  const program = needs("pgbouncer");
  let folder: string;
  let pooler: ChildProcess | undefined;
  let database: string;
  let pooled: string;
  /** The database past PgBouncer, with the role that owns it. */
  let owners: URL;

  async function inPostgres(statement: string): Promise<void> {
    const orm = await openStackDatabase("owner");
    try {
      await orm.em.getConnection().execute(statement);
    } finally {
      await orm.close(true);
    }
  }

  beforeEach(async () => {
    database = unique("pooled").replaceAll("-", "_");
    await inPostgres(`create database ${database}`);
    const { env } = await stack();
    const server = new URL(env.DATABASE_URL);
    const { port } = await reservePorts({ port: { port: 0 } });
    folder = mkdtempSync("/var/tmp/mailkeel-pgbouncer-");
    const ids = await userIds();
    const login = `user=${server.username} password=${server.password}`;
    const settings = {
      listen_addr: "127.0.0.1",
      listen_port: port,
      unix_socket_dir: "",
      pool_mode: "session",
      auth_type: "any",
      max_client_conn: 200,
      default_pool_size: 150,
    };
    writeFileSync(
      `${folder}/pgbouncer.ini`,
      [
        "[databases]",
        `${database} = host=${server.hostname} port=${server.port} dbname=${database} ${login}`,
        "[pgbouncer]",
        ...Object.entries(settings).map(([name, value]) => `${name} = ${value}`),
        "",
      ].join("\n"),
    );
    await promisify(execFile)("chown", ["-R", `${ids.uid ?? process.getuid?.()}`, folder]);
    chmodSync(folder, 0o700);
    const child = spawn(program(), [`${folder}/pgbouncer.ini`], {
      ...ids,
      cwd: "/",
      stdio: ["ignore", "ignore", "pipe"],
    });
    pooler = child;
    let log = "";
    child.stderr.on("data", (chunk: Buffer) => {
      log += chunk.toString();
    });
    const listens = async () => {
      const socket = createConnection(port, "127.0.0.1");
      await once(socket, "connect").finally(() => socket.destroy());
      return true;
    };
    await eventually(listens, { withinMs: 10_000, what: "PgBouncer to listen" }).catch((cause) => {
      throw new Error(`PgBouncer did not start: ${log}`, { cause });
    });
    owners = new URL(env.MIGRATION_DATABASE_URL ?? "");
    owners.pathname = `/${database}`;
    pooled = `postgres://${server.username}@127.0.0.1:${port}/${database}`;
  });

  afterEach(async () => {
    await clearStacks();
    if (pooler && pooler.exitCode === null) {
      const gone = once(pooler, "exit");
      pooler.kill("SIGTERM");
      await gone;
    }
    await inPostgres(`drop database ${database} with (force)`);
    rmSync(folder, { recursive: true, force: true });
  });

  it("migrates, sends a newsletter and delivers its webhooks", async () => {
    const own = spawnStack({ env: { DATABASE_URL: pooled, MIGRATION_DATABASE_URL: owners.href } });
    await own.ready();
    const output = await runDemo(own, "--recipients", String(RECIPIENTS), "--events", "*");
    assert.match(output, new RegExp(`SENT: ${RECIPIENTS} sent`));
    assert.match(output, new RegExp(`${RECIPIENTS} email\\.sent`));
  });
});
