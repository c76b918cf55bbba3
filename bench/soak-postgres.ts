import { randomBytes } from "node:crypto";
import { appendFile, chown, cp, mkdtemp, readdir, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import pg from "pg";
import { reservePorts } from "../stack/infra.ts";
import { type EmbeddedPostgres, embeddedPostgres, removeDataDir } from "../stack/postgres.ts";
import { Processes } from "../stack/processes.ts";
import { until } from "../stack/until.ts";
import { startTcpProxy, type TcpProxy } from "../test/support/tcp-proxy.ts";

/**
 * Every commit waits for the standby, also while there is none: no commit is acknowledged that a failover loses. The
 * standby finds the WAL that it has missed, and connects again soon.
 */
const REPLICATION = {
  synchronous_standby_names: "*",
  wal_keep_size: "1GB",
  wal_retrieve_retry_interval: "500ms",
};
/** Files that a server writes while it runs, and those that the standby gets by streaming: no part of a copy of the folder. */
const NOT_COPIED = /\/(pg_wal\/.+|postmaster\.(pid|opts)|standby\.signal|pg_replslot\/.+|pg_stat_tmp\/.+)$/;
const PROMOTED_WITHIN_S = 60;
/** How long it may take until there is a standby: a primary that crashes meanwhile spoils the copy, which is then made anew. */
const IN_SYNC_WITHIN_MS = 180_000;

/** A data folder, the port of its server, and the server while it runs. */
interface Server {
  dataDir: string;
  port: number;
  postgres: EmbeddedPostgres;
  processes: Processes;
}

/** Two servers of Postgres behind one address: a primary, and a synchronous standby that takes over from it. */
export class PostgresPair {
  #primary: Server;
  #standby: Server;
  readonly #proxy: TcpProxy;
  /** From the kill of a primary until the next one serves. */
  #isFailingOver = false;

  private constructor(primary: Server, standby: Server, proxy: TcpProxy) {
    this.#primary = primary;
    this.#standby = standby;
    this.#proxy = proxy;
  }

  /** Makes a database and its standby, and starts both. */
  static async start(): Promise<PostgresPair> {
    const ports = await reservePorts({ first: { port: 0 }, second: { port: 0 } });
    const password = () => randomBytes(18).toString("base64url");
    const passwords = { owner: password(), application: password() };
    const prepare = async (port: number): Promise<Server> => {
      const dataDir = await mkdtemp(`${tmpdir()}/mailkeel-postgres-`);
      const postgres = await embeddedPostgres({ dataDir, port, passwords, ephemeral: false });
      const flags = Object.entries(REPLICATION).flatMap(([setting, value]) => ["-c", `${setting}=${value}`]);
      postgres.command.args.push(...flags);
      return { dataDir, port, postgres, processes: new Processes() };
    };
    const [primary, standby] = await Promise.all([prepare(ports.first), prepare(ports.second)]);
    const proxy = await startTcpProxy({ host: "127.0.0.1", port: primary.port });
    const pair = new PostgresPair(primary, standby, proxy);
    try {
      await serve(primary);
      await pair.#buildStandby();
    } catch (error) {
      await pair.stop();
      throw error;
    }
    return pair;
  }

  /** Settings of a stack on this database. */
  get settings(): { DATABASE_URL: string; MIGRATION_DATABASE_URL: string } {
    const throughProxy = (given: string): string => {
      const url = new URL(given);
      url.port = String(this.#proxy.port);
      return url.href;
    };
    const { url, ownerUrl } = this.#primary.postgres;
    return { DATABASE_URL: throughProxy(url), MIGRATION_DATABASE_URL: throughProxy(ownerUrl) };
  }

  /** The primary, which is started again when it dies; undefined during a failover. */
  get primaryPid(): number | undefined {
    return this.#isFailingOver ? undefined : this.#primary.processes.pids()["postgres"];
  }

  /**
   * Kills the primary by SIGKILL, promotes the standby, and builds a new standby in the folder of the killed server.
   * Resolves when that is in sync.
   */
  async failOver(): Promise<void> {
    // After a crash, clients see commits that had not reached the standby yet.
    await this.#untilInSync();
    const [killed, promoted] = [this.#primary, this.#standby];
    this.#isFailingOver = true;
    // Also its sessions, which may live a moment longer than the server itself: no client is answered by the old primary.
    const ended = killed.processes.killAll();
    this.#proxy.cut();
    await ended;
    const { rows } = await query(promoted, `select pg_promote(true, ${PROMOTED_WITHIN_S}) as serves`);
    if (rows[0]?.serves !== true) throw new Error(`The standby was not promoted within ${PROMOTED_WITHIN_S} s`);
    this.#proxy.redirect({ host: "127.0.0.1", port: promoted.port });
    this.#proxy.heal();
    [this.#primary, this.#standby] = [promoted, killed];
    this.#isFailingOver = false;
    await this.#buildStandby();
  }

  async #buildStandby(): Promise<void> {
    const build = async () => {
      await this.#standby.processes.killAll();
      await this.#copyPrimary();
      this.#standby.processes = new Processes();
      await serve(this.#standby);
      return true;
    };
    await until("a standby", build, { timeoutMs: IN_SYNC_WITHIN_MS, everyMs: 1_000 });
    await this.#untilInSync();
  }

  /** Waits until the standby has all that is in the primary now. */
  async #untilInSync(): Promise<void> {
    let written: string | undefined;
    const isInSync = async () => {
      written ??= (await query(this.#primary, "select pg_current_wal_lsn() as written")).rows[0]?.written;
      const { rowCount } = await query(
        this.#primary,
        `select from pg_stat_replication where sync_state = 'sync' and flush_lsn >= '${written}'`,
      );
      return rowCount === 1;
    };
    await until("the standby to be in sync", isInSync, { timeoutMs: IN_SYNC_WITHIN_MS, everyMs: 100 });
  }

  /** Copies the primary's folder as a base backup, and makes a standby of the copy. */
  async #copyPrimary(): Promise<void> {
    const { postgres: from } = this.#primary;
    const { folder: to, command } = this.#standby.postgres;
    await rm(to, { recursive: true, force: true });
    const client = await connect(this.#primary);
    try {
      await client.query("select pg_backup_start('standby', true)");
      await cp(from.folder, to, { recursive: true, filter: (path) => !NOT_COPIED.test(path) });
      const { rows } = await client.query<{ labelfile: string }>("select labelfile from pg_backup_stop(false)");
      await writeFile(`${to}/backup_label`, rows[0]?.labelfile ?? "");
    } finally {
      await client.end();
    }
    const { hostname, port, username, password } = new URL(from.ownerUrl);
    const source = `host=${hostname} port=${port} user=${username} password=${password} application_name=standby`;
    // The last line of a setting counts: the copy has those of standbys before.
    await appendFile(`${to}/postgresql.auto.conf`, `primary_conninfo = '${source}'\n`);
    await writeFile(`${to}/standby.signal`, "");
    if (command.uid !== undefined && command.gid !== undefined) await giveTo(to, command.uid, command.gid);
  }

  async stop(): Promise<void> {
    this.#proxy.close();
    for (const { processes, dataDir } of [this.#standby, this.#primary]) {
      await processes.stopAll();
      await removeDataDir(dataDir);
    }
  }
}

async function serve({ dataDir, postgres, processes }: Server): Promise<void> {
  const { graceMs } = postgres.command;
  await processes.start({ name: "postgres", log: `${dataDir}/log`, env: process.env, graceMs, ...postgres });
}

/** A connection as the owner, to the server itself. */
async function connect({ postgres }: Server): Promise<pg.Client> {
  const url = new URL(postgres.ownerUrl);
  // The stack makes its own database only when it starts.
  url.pathname = "/postgres";
  const client = new pg.Client({ connectionString: url.href });
  // The server may be killed meanwhile: the statement fails.
  client.on("error", () => {});
  await client.connect();
  return client;
}

async function query(server: Server, statement: string): Promise<pg.QueryResult> {
  const client = await connect(server);
  return client.query(statement).finally(() => client.end());
}

/** Makes a user the owner of a folder and of all that it holds. */
async function giveTo(folder: string, uid: number, gid: number): Promise<void> {
  await chown(folder, uid, gid);
  for (const entry of await readdir(folder, { recursive: true })) await chown(`${folder}/${entry}`, uid, gid);
}
