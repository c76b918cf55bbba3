import { createHash } from "node:crypto";
import { constants } from "node:fs";
import { access, chmod, mkdir, rm } from "node:fs/promises";
import { resolve } from "node:path";
import { type Env, givenVariables, isSetting, readEnv } from "../config/env.ts";
import { CLOSE_MARGIN_MS } from "../config/stop-limit.ts";
import { codeOf } from "../db/unreachable.ts";
import { type PoolName, TASK_QUEUES } from "../temporal/ids.ts";
import {
  databaseRefusal,
  givenDatabase,
  INFRA_STOP_ORDER,
  type Infra,
  reservePorts,
  type Step,
  startInfra,
  type WantedPort,
} from "./infra.ts";
import { type DataDirLock, lockDataDir, waitForLeftovers } from "./lock.ts";
import { BACKOFF_MS, Processes, type ProcessSpec, StackError } from "./processes.ts";
import { LOOPBACK_SMTP, type StackSettings } from "./settings.ts";
import { type Demo, hasDatabase, loadSecrets, type StackFile, saveSecrets, writeJson } from "./state.ts";

/** The worker pools of every stack. */
export const POOLS = Object.keys(TASK_QUEUES) as PoolName[];
/** Those of a stack with these settings: reports come by mail only where mails have return paths. */
const poolsOf = ({ RETURN_PATH_DOMAIN }: Record<string, string>): PoolName[] =>
  RETURN_PATH_DOMAIN === undefined ? POOLS : [...POOLS, "intake"];

/** A process with a health port. */
export type Watched = "api" | PoolName;

/** SQLSTATE. */
const REFUSED_PASSWORD = "28P01";

const ROOT = resolve(import.meta.dirname, "..");
/** Keeps compiled sources between starts: a process starts in a third of the time, and with less memory. */
const COMPILE_CACHE = `${ROOT}/node_modules/.cache/mailkeel/compiled`;
/** Every server but the API listens here alone, also when HOST is another address: none of them asks for a login. */
const LOOPBACK = "127.0.0.1";

export interface StackOptions {
  settings: StackSettings;
  /** Settings of the API and the workers; missing ones are generated. */
  source: NodeJS.ProcessEnv;
  /** For tests: gives durability up for speed, and starts dead children again without growing waits. */
  ephemeral?: boolean;
  /** Folder of the code that it begins with, e.g. of the version before; this one unless given. */
  code?: string;
  /** Pauses every send before a worker runs: a restored database does not know the mails that left since its backup. */
  holdsSends?: boolean;
  step: Step;
  /** Called when a child has died, and when it has been started again. */
  say: (message: string) => void;
}

/** A host as it stands in a URL that this machine can open. */
function reachable(host: string): string {
  if (host === "0.0.0.0" || host === "::") return "127.0.0.1";
  return host.includes(":") ? `[${host}]` : host;
}

/** An id of the database that stays the same when the embedded one changes its port, or a given one its password. */
function databaseId(given: string | undefined): string {
  if (!given) return "embedded";
  const { host, pathname } = new URL(given);
  return createHash("sha256").update(`${host}${pathname}`).digest("hex").slice(0, 16);
}

/** One run of the stack: `start` once, then `stop` or `kill` at any time, also in the middle of the start. */
export class Stack {
  #options: StackOptions;
  #processes: Processes;
  #file: string;
  #content: StackFile | undefined;
  #lock: DataDirLock | undefined;
  #childEnv: NodeJS.ProcessEnv = {};
  #graceMs = 0;
  /** The last write of stack.json. */
  #saved = Promise.resolve();

  constructor(options: StackOptions) {
    this.#options = options;
    this.#file = `${options.settings.DATA_DIR}/stack.json`;
    const events = {
      died: (name: string, how: string, ms: number) =>
        options.say(`${name} stopped (${how}); it is started again in ${ms / 1_000} s`),
      restarted: (name: string, pid: number) => {
        options.say(`${name} is back`);
        this.#savePid(name, pid);
      },
      starting: (name: string, ms: number) =>
        options.say(`waiting for ${name}, which has been starting for ${Math.round(ms / 1_000)} s`),
    };
    // Tests kill children on purpose: what one has killed lets no later one wait.
    this.#processes = new Processes(events, options.ephemeral ? { mostBackoffMs: BACKOFF_MS.first } : {});
  }

  /**
   * Brings everything up and writes stack.json.
   * @throws {StackError | SettingsError} when the user can put something right
   */
  async start(): Promise<{ file: string; content: StackFile }> {
    const { settings, ephemeral = false, holdsSends = false, step } = this.#options;
    const source = givenVariables(this.#options.source);
    const dataDir = settings.DATA_DIR;
    // Settings first: nothing is made or started on wrong ones. The placeholders stand for values that are found out below.
    readEnv({ ...PLACEHOLDERS, ...source });
    const refuse = (cause: NodeJS.ErrnoException) => {
      const remedy = "Make it a folder of the user who starts Mailkeel (chown -R), or set DATA_DIR to another one.";
      throw new StackError(`DATA_DIR: cannot use ${dataDir} (${cause.code ?? cause.message}). ${remedy}`, { cause });
    };
    await mkdir(dataDir, { recursive: true })
      .then(() => access(dataDir, constants.W_OK))
      .catch(refuse);
    givenDatabase(source);
    const lock = await lockDataDir(dataDir);
    this.#lock = lock;
    // Only now: the Postgres of a stack that runs here may be another user's and needs to get through.
    await chmod(dataDir, 0o700).catch(refuse);
    if (lock.afterKill) await waitForLeftovers(dataDir);
    if (holdsSends && !source["DATABASE_URL"] && !hasDatabase(dataDir)) {
      throw new StackError(
        `${dataDir} holds no database whose sends could be held. Restore one: docs/operations/admin.md, Restore; DATA_DIR is spelled as it was at the backup.`,
      );
    }

    const host = source["HOST"] ?? LOOPBACK;
    // The health port of each process: they cannot share one.
    const healthPorts = {} as Record<Watched, WantedPort>;
    const pools = poolsOf(source);
    const watched: Watched[] = ["api", ...pools];
    const firstPort = settings.HEALTH_PORT;
    for (const [i, name] of watched.entries())
      healthPorts[name] = { port: firstPort && firstPort + i, setting: "HEALTH_PORT" };
    const ports = await reservePorts({
      PORT: { host, port: settings.PORT },
      // A server that is given takes its port's place: the system may choose one.
      POSTGRES_PORT: { port: source["DATABASE_URL"] ? 0 : settings.POSTGRES_PORT },
      TEMPORAL_PORT: { port: source["TEMPORAL_ADDRESS"] ? 0 : settings.TEMPORAL_PORT },
      TEMPORAL_UI_PORT: { port: source["TEMPORAL_ADDRESS"] ? 0 : settings.TEMPORAL_UI_PORT },
      SMTP_PORT: { port: settings.SMTP_PORT },
      MAIL_PORT: { port: settings.MAIL_PORT },
      WEBHOOK_RECEIVER_PORT: { port: source["WEBHOOK_ALLOWED_HOSTS"] ? 0 : settings.WEBHOOK_RECEIVER_PORT },
      ...healthPorts,
    });
    const secrets = await loadSecrets(dataDir);
    const origin = `http://${reachable(host)}:${ports.PORT}`;
    const receiver = `127.0.0.1:${ports.WEBHOOK_RECEIVER_PORT}`;

    const { TEMPORAL_CLI: temporalCli } = settings;
    const processes = this.#processes;
    const infra = await startInfra({ dataDir, ports, ephemeral, source, temporalCli, processes, step });
    const childEnv: NodeJS.ProcessEnv = {
      NODE_COMPILE_CACHE: COMPILE_CACHE,
      // glibc keeps freed memory in an arena for each thread: large answers would leave some in all of them.
      MALLOC_ARENA_MAX: "2",
      SYSTEM_SMTP_URL: infra.smtp,
      SIGNING_SECRET: secrets.signingSecret,
      ENCRYPTION_KEYS: secrets.encryptionKeys,
      PUBLIC_URL: origin,
      WEBHOOK_ALLOWED_HOSTS: receiver,
      SMTP_ALLOWED_HOSTS: LOOPBACK_SMTP,
      ...(source["IMAGES_S3_URL"] === undefined && { IMAGES_DIRECTORY: `${dataDir}/images` }),
      ...(infra.temporalUi ? withoutCluster(source) : source),
      DATABASE_URL: infra.databaseUrl,
      // No child migrates.
      MIGRATION_DATABASE_URL: "",
      TEMPORAL_ADDRESS: infra.temporalAddress,
      PORT: String(ports.PORT),
      // The user's own profile for some other cluster is none for the embedded server.
      ...(infra.temporalUi && { TEMPORAL_CONFIG_FILE: `${settings.DATA_DIR}/no-profile.toml` }),
    };
    const env = readEnv(childEnv);
    this.#childEnv = childEnv;
    this.#graceMs = env.SHUTDOWN_GRACE_MS + CLOSE_MARGIN_MS;
    await step("database schema", () => this.#migrate(infra));
    if (holdsSends) await step("sends held", (report) => holdSends(infra, report));
    const [demo] = await Promise.all([
      this.#demo(infra, env),
      step("API and workers", () =>
        Promise.all(watched.map((name) => this.#processes.start(this.#childOf(name, this.#code, ports[name])))),
      ),
    ]);

    const { postgres, temporal, api, ...workers } = this.#processes.pids();
    delete workers["mail"];
    this.#content = {
      api: `${origin}/api/v2`,
      ...demo,
      database: infra.databaseUrl,
      migrationDatabase: infra.migrationUrl,
      temporal: { address: infra.temporalAddress, namespace: env.TEMPORAL_NAMESPACE, ui: infra.temporalUi },
      mail: { smtp: infra.smtp, api: infra.mailApi },
      webhooks: { receiver: env.WEBHOOK_ALLOWED_HOSTS.includes(receiver) ? `http://${receiver}` : null },
      health: Object.fromEntries(watched.map((name) => [name, `http://${LOOPBACK}:${ports[name]}`])),
      settings: workerSettings(childEnv),
      pids: { ...(api && { api }), ...(temporal && { temporal }), ...(postgres && { postgres }), ...workers },
    };
    this.#saved = writeJson(this.#file, this.#content);
    await this.#saved;
    return { file: this.#file, content: this.#content };
  }

  get #code(): string {
    return this.#options.code ?? ROOT;
  }

  async #migrate({ migrationUrl, databaseUrl }: Infra): Promise<void> {
    const { migrate }: typeof import("../db/orm.ts") = await import(`${this.#code}/db/orm.ts`);
    try {
      await migrate(migrationUrl, databaseUrl);
    } catch (cause) {
      const { settings, source } = this.#options;
      if (!source["DATABASE_URL"] && cause instanceof Error && codeOf(cause) === REFUSED_PASSWORD) {
        throw new StackError(
          `${settings.DATA_DIR}/secrets.json is not that of its database, which refuses the password. Restore both of one backup.`,
          { cause },
        );
      }
      // Another error in the embedded database is a defect of ours, so it is shown in full.
      if (!source["DATABASE_URL"]) throw cause;
      throw databaseRefusal(migrationUrl, cause);
    }
  }

  async #demo(infra: Infra, env: Env): Promise<Demo> {
    const dataDir = this.#options.settings.DATA_DIR;
    const secrets = await loadSecrets(dataDir);
    const id = databaseId(this.#options.source["DATABASE_URL"]);
    const known = infra.databaseIsNew ? undefined : secrets.demos[id];
    const { hostname, port } = new URL(infra.smtp);
    const mail = { host: hostname, port: Number(port) };
    if (known) {
      const { pointDemoAccount } = await import("./demo-team.ts");
      await pointDemoAccount(infra.databaseUrl, known.team.id, mail);
      return known;
    }
    return this.#options.step("demo team", async () => {
      const { seedDemo }: typeof import("./demo-team.ts") = await import(`${this.#code}/stack/demo-team.ts`);
      const demo = await seedDemo({ env, mail });
      await saveSecrets(dataDir, { ...secrets, demos: { ...secrets.demos, [id]: demo } });
      return demo;
    });
  }

  #childOf(name: Watched, code: string, healthPort: number, settings: NodeJS.ProcessEnv = {}): ProcessSpec {
    const isApi = name === "api";
    return {
      name,
      entry: `${code}/${isApi ? "api" : "workers"}/main.ts`,
      args: isApi ? [] : ["--pool", name],
      log: `${this.#options.settings.DATA_DIR}/logs/${name}.log`,
      env: { ...this.#childEnv, HEALTH_HOST: LOOPBACK, HEALTH_PORT: String(healthPort), ...settings },
      graceMs: this.#graceMs,
    };
  }

  /**
   * Starts one of its processes from the code in another folder, and then stops the one that ran, as in an upgrade.
   * @param serves called with the port of an API that serves, before the other one stops
   */
  async replace(name: Watched, code: string, serves: (port: number) => void = () => {}): Promise<void> {
    const ports = await reservePorts({ health: { port: 0 }, api: { port: 0 } });
    const child = this.#childOf(name, code, ports.health, { PORT: String(ports.api) });
    this.#savePid(name, await this.#processes.replace(child, () => serves(ports.api)));
  }

  /** Writes are made one after the other, so that the last one has the pids of all. */
  #savePid(name: string, pid: number): void {
    if (!this.#content || !(name in this.#content.pids)) return;
    this.#content.pids[name] = pid;
    this.#saved = this.#saved
      .then(async () => this.#content && (await writeJson(this.#file, this.#content)))
      .catch((error) => this.#options.say(`stack.json could not be written: ${error.message}`));
  }

  /** Stops everything in order; the data stays. */
  async stop(): Promise<void> {
    await this.#end(() => this.#processes.stopAll(...INFRA_STOP_ORDER));
  }

  async kill(): Promise<void> {
    await this.#end(() => this.#processes.killAll());
  }

  async #end(endProcesses: () => Promise<void>): Promise<void> {
    // Without the lock, the folder and its stack.json are another stack's.
    const removeFile = async () => this.#lock && rm(this.#file, { force: true });
    this.#content = undefined;
    await removeFile();
    await endProcesses();
    // A child that was restarted just before may have its pid written meanwhile.
    await this.#saved;
    await removeFile();
    await this.#lock?.release();
  }
}

async function holdSends({ databaseUrl }: Infra, report: (message: string) => void): Promise<void> {
  const { openDatabase } = await import("../db/orm.ts");
  const { holdOpenSends } = await import("../domain/sends/operators/unfinished.ts");
  const { holdSequences } = await import("../domain/sequences/state.ts");
  const orm = await openDatabase(databaseUrl, { poolMax: 1 });
  try {
    const sends = await holdOpenSends(orm.em.fork());
    report(`${sends} are paused, and ${await holdSequences(orm.em.fork())} sequences`);
  } finally {
    await orm.close(true);
  }
}

const PLACEHOLDERS = {
  DATABASE_URL: "postgres://127.0.0.1/mailkeel",
  TEMPORAL_ADDRESS: "127.0.0.1:7233",
  SIGNING_SECRET: Buffer.alloc(32).toString("base64"),
  ENCRYPTION_KEYS: `k1:${Buffer.alloc(32).toString("base64")}`,
  SYSTEM_SMTP_URL: "smtp://127.0.0.1:1025",
  PUBLIC_URL: "http://127.0.0.1:3000",
};

/** Settings of its workers that the command line needs too, by their names. */
const isShared = (name: string): boolean =>
  /^TEMPORAL_/.test(name) || (isSetting(name) && !/^(HOST|PORT|HEALTH_\w+|MIGRATION_DATABASE_URL)$/.test(name));

const workerSettings = (env: NodeJS.ProcessEnv): Record<string, string> =>
  Object.fromEntries(Object.entries(givenVariables(env)).filter(([name]) => isShared(name)));

/** Without the address and the login of the user's own cluster: they are not for the embedded server. */
function withoutCluster(source: Record<string, string>): Record<string, string> {
  return Object.fromEntries(Object.entries(source).filter(([name]) => !/^TEMPORAL_(?!NAMESPACE$)/.test(name)));
}
