import assert from "node:assert/strict";
import { type ChildProcess, execFile, spawn } from "node:child_process";
import { once } from "node:events";
import { chmodSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createConnection } from "node:net";
import { promisify } from "node:util";
import pg from "pg";
import { reservePorts } from "../../stack/infra.ts";
import { clearStacks, runDemo, spawnStack } from "../stack/support.ts";
import { eventually } from "../support/eventually.ts";
import { openStackDatabase, unique } from "../support/factories.ts";
import { needs } from "../support/programs.ts";
import { stack } from "../support/stack.ts";

const RECIPIENTS = 300;

/** PgBouncer refuses to run as root: then it runs as this user. */
const USER = "nobody";

async function userIds(): Promise<{ uid?: number; gid?: number }> {
  if (process.getuid?.() !== 0) return {};
  const id = async (flag: string) => Number((await promisify(execFile)("id", [flag, USER])).stdout);
  return { uid: await id("-u"), gid: await id("-g") };
}

describe("PgBouncer", () => {
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

  /** @param poolSize connections to Postgres at most */
  async function startPooler(mode: "session" | "transaction", poolSize = 150): Promise<void> {
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
      pool_mode: mode,
      auth_type: "any",
      max_client_conn: 200,
      default_pool_size: poolSize,
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
  }

  const opened: pg.Client[] = [];
  async function connect(): Promise<pg.Client> {
    const client = new pg.Client({ connectionString: pooled });
    opened.push(client);
    await client.connect();
    return client;
  }

  const TIMEOUT = "statement_timeout";
  /** What one client of the pooler keeps for itself, and another one does. */
  async function useSessions(): Promise<{ notified: number; prepared: string; otherTimeout: string }> {
    const [one, other] = [await connect(), await connect()];
    let notified = 0;
    one.on("notification", () => notified++);
    await one.query("listen relay");
    await one.query(`set ${TIMEOUT} = '77s'`);
    const statement = { name: "ours", text: "select 1 as one" };
    await one.query(statement);
    const prepared = await other.query(statement).then(
      () => "prepared",
      (error: pg.DatabaseError) => error.message,
    );
    const shown = await other.query(`show ${TIMEOUT}`);
    await other.query("notify relay");
    // A notification comes before the answer to a statement that follows it.
    await one.query("select 1");
    return { notified, prepared, otherTimeout: shown.rows[0][TIMEOUT] };
  }

  afterEach(async () => {
    await clearStacks();
    for (const client of opened.splice(0)) await client.end().catch(() => undefined);
    if (pooler && pooler.exitCode === null) {
      const gone = once(pooler, "exit");
      pooler.kill("SIGTERM");
      await gone;
    }
    await inPostgres(`drop database ${database} with (force)`);
    rmSync(folder, { recursive: true, force: true });
  });

  it("in session pooling leaves each client its prepared statements, its notifications and its settings", async () => {
    await startPooler("session");
    assert.deepEqual(await useSessions(), { notified: 1, prepared: "prepared", otherTimeout: "0" });
  });

  it("in transaction pooling mixes them up, so that the service does not work behind it", async () => {
    await startPooler("transaction", 1);
    const { prepared, otherTimeout } = await useSessions();
    assert.match(prepared, /prepared statement "ours" already exists/);
    assert.equal(otherTimeout, "77s");
  });

  it("in session pooling lets the service migrate, send a newsletter and deliver its webhooks", async () => {
    await startPooler("session");
    const own = spawnStack({ env: { DATABASE_URL: pooled, MIGRATION_DATABASE_URL: owners.href } });
    await own.ready();
    const output = await runDemo(own, "--recipients", String(RECIPIENTS), "--events", "*");
    assert.match(output, new RegExp(`SENT: ${RECIPIENTS} sent`));
    assert.match(output, new RegExp(`${RECIPIENTS} email\\.sent`));
  });
});
