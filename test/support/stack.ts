import { type ChildProcess, fork } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { existsSync, readFileSync } from "node:fs";
import { dirname } from "node:path";
import { type Env, readEnv } from "../../config/env.ts";
import { migrate } from "../../db/orm.ts";
import { LOOPBACK_SMTP, NO_RATE_LIMITS } from "../../stack/settings.ts";

/** The stack that the tests run against. */
export interface TestStack {
  /** Base URL of the API, with the version. */
  api: string;
  /** Scheme, host and port of the API: for paths outside the versioned base. */
  origin: string;
  /** The settings of the stack's processes: the same database, the same secrets; and the database with its owner's role. */
  env: Env;
  temporal: { address: string; namespace: string };
  mail: { smtp: string; api: string };
  /** Base URL of the health and metrics of the API and of each worker pool. */
  health: Record<string, string>;
  pids: Record<string, number>;
}

interface StackFile {
  api: string;
  database: string;
  migrationDatabase: string;
  temporal: TestStack["temporal"];
  mail: TestStack["mail"];
  health: TestStack["health"];
  pids: Record<string, number>;
}

const API_MAIN = `${import.meta.dirname}/../../api/main.ts`;

/** The stack that `npm test` brought up; its secrets are in the same folder as its file. */
function givenStack(file: string): TestStack {
  const { api, database, migrationDatabase, temporal, mail, health, pids } = JSON.parse(
    readFileSync(file, "utf8"),
  ) as StackFile;
  const secrets = JSON.parse(readFileSync(`${dirname(file)}/secrets.json`, "utf8")) as Record<string, string>;
  const env = readEnv({
    DATABASE_URL: database,
    MIGRATION_DATABASE_URL: migrationDatabase,
    TEMPORAL_ADDRESS: temporal.address,
    TEMPORAL_NAMESPACE: temporal.namespace,
    SYSTEM_SMTP_URL: mail.smtp,
    SMTP_ALLOWED_HOSTS: LOOPBACK_SMTP,
    SIGNING_SECRET: secrets["signingSecret"],
    ENCRYPTION_KEYS: secrets["encryptionKeys"],
    PUBLIC_URL: new URL(api).origin,
    LOG_LEVEL: "silent",
    ...NO_RATE_LIMITS,
  });
  return { api, origin: new URL(api).origin, env, temporal, mail, health, pids };
}

let child: ChildProcess | undefined;

/**
 * Without `npm test`: the API alone, over the Postgres of TEST_DATABASE_URL, a server on which databases may be made.
 * For work on the API; tests that need Temporal or mail do not pass here.
 */
async function loneApi(server: string): Promise<TestStack> {
  const owners = new URL(server);
  owners.pathname = `/mailkeel_test_${process.pid}`;
  const database = new URL(owners);
  database.username = `mailkeel_test_${process.pid}`;
  database.password = randomBytes(18).toString("hex");
  const settings = {
    DATABASE_URL: database.href,
    MIGRATION_DATABASE_URL: owners.href,
    TEMPORAL_ADDRESS: process.env["TEST_TEMPORAL_ADDRESS"] ?? "127.0.0.1:7233",
    SIGNING_SECRET: randomBytes(32).toString("base64"),
    ENCRYPTION_KEYS: `k1:${randomBytes(32).toString("base64")}`,
    SYSTEM_SMTP_URL: "smtp://127.0.0.1:1025",
    PUBLIC_URL: "http://127.0.0.1:3000",
    LOG_LEVEL: process.env["LOG_LEVEL"] ?? "error",
    PORT: "0",
    ...NO_RATE_LIMITS,
  };
  await migrate(settings.MIGRATION_DATABASE_URL, settings.DATABASE_URL);
  child = fork(API_MAIN, { env: { PATH: process.env["PATH"], ...settings } });
  const [{ port, healthPort }] = (await once(child, "message")) as [{ port: number; healthPort: number }];
  const origin = `http://127.0.0.1:${port}`;
  const env = readEnv({ ...settings, LOG_LEVEL: "silent" });
  const temporal = { address: env.TEMPORAL_ADDRESS, namespace: env.TEMPORAL_NAMESPACE };
  const mail = { smtp: env.SYSTEM_SMTP_URL, api: "http://127.0.0.1:1080" };
  return {
    api: `${origin}/api/v2`,
    origin,
    env,
    temporal,
    mail,
    health: { api: `http://127.0.0.1:${healthPort}` },
    pids: child.pid ? { api: child.pid } : {},
  };
}

let opened: Promise<TestStack> | undefined;

/** The stack the tests run against; the same one for all of them. */
export function stack(): Promise<TestStack> {
  opened ??= openStack();
  return opened;
}

async function openStack(): Promise<TestStack> {
  const file = process.env["MAILKEEL_STACK"];
  if (file && existsSync(file)) return givenStack(file);
  const server = process.env["TEST_DATABASE_URL"];
  if (server) return loneApi(server);
  throw new Error("Run the tests with `npm test`, or set TEST_DATABASE_URL to try the API's alone");
}

/** Ends the processes that `stack` started itself. */
export async function closeStack(): Promise<void> {
  if (!child || child.exitCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "exit");
}
