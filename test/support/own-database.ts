import { fork, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { text } from "node:stream/consumers";
import { formatKeys, type SecretKey } from "../../config/env.ts";
import { type MikroORM, migrate, openDatabase, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import { addSubscribers, createList } from "../../domain/audience/lists.ts";
import { createSubscriber } from "../../domain/audience/subscribers.ts";
import { confirmUrl } from "../../domain/mail/links.ts";
import { openAdmitted } from "../../domain/secrets/admission.ts";
import { openVault } from "../../domain/secrets/crypto.ts";
import { backdoor, makeTeam, unique, uniqueEmail } from "./factories.ts";
import { workerSettings } from "./processes.ts";
import { stack } from "./stack.ts";

const ROOT = `${import.meta.dirname}/../..`;

/** A new key for SIGNING_SECRET or ENCRYPTION_KEYS. */
export const newKey = (id: string): SecretKey => [id, randomBytes(32).toString("base64")];

const LISTS: readonly Scope[] = ["lists:read", "lists:write"];

export interface OwnDatabase {
  /** With its owner's role. */
  orm: MikroORM;
  /** The application's connection string. */
  url: string;
  drop(): Promise<void>;
}

/** A database with the schema and without a row. */
const TEMPLATE = "mailkeel_template";

let template: Promise<void> | undefined;

async function addressesOf(name: string): Promise<[owners: string, applications: string]> {
  const { MIGRATION_DATABASE_URL, DATABASE_URL } = (await stack()).env;
  const [owners, applications] = [new URL(MIGRATION_DATABASE_URL ?? ""), new URL(DATABASE_URL)];
  for (const each of [owners, applications]) each.pathname = `/${name}`;
  return [owners.href, applications.href];
}

async function onServer(...statements: string[]): Promise<void> {
  const { orm } = await backdoor();
  for (const statement of statements) await orm.em.fork().execute(statement);
}

/** A migrated database of a test's own, on the stack's server: a copy of one that is migrated once. */
export async function makeDatabase({ poolMax = 2 } = {}): Promise<OwnDatabase> {
  template ??= addressesOf(TEMPLATE).then(([owners, applications]) => migrate(owners, applications));
  await template;
  const name = unique("own").replace("-", "_");
  const [owners, url] = await addressesOf(name);
  await onServer(`create database "${name}" template "${TEMPLATE}"`);
  const orm = await openDatabase(owners, { poolMax });
  return {
    orm,
    url,
    drop: async () => {
      await orm.close(true);
      await onServer(`drop database "${name}" with (force)`);
    },
  };
}

/** Keys of a process's settings; the first ones sign and encrypt. */
export interface Keys {
  signing: SecretKey[];
  encryption: SecretKey[];
}

/** The settings of a process that works on a database of a test's own with these keys. */
export const settingsOf = ({ url }: OwnDatabase, { signing, encryption }: Keys) => ({
  DATABASE_URL: url,
  SIGNING_SECRET: formatKeys(signing),
  ENCRYPTION_KEYS: formatKeys(encryption),
});

/** A team in a database of a test's own, with what its API client and its subscriber hold; made with these keys. */
export async function makeClient(
  { url }: OwnDatabase,
  { signing, encryption }: Keys,
  scopes: readonly Scope[] = LISTS,
) {
  const env = { DATABASE_URL: url, SIGNING_SECRET: signing, ENCRYPTION_KEYS: encryption };
  const vault = openVault(env);
  const { orm, connect } = await openAdmitted(env, vault, { poolMax: 1 });
  try {
    const failure = await connect();
    if (failure !== undefined) throw failure;
    const { em: ofTeam, team, keys } = await makeTeam({ database: { orm, vault }, scopes });
    const tenant: Tenant = { teamId: team.id, environment: "LIVE" };
    return await transaction(ofTeam, async (em) => {
      const list = await createList(em, tenant, { name: "List", description: null, optin: "DOUBLE" }, 1);
      const email = uniqueEmail();
      const subscriber = await createSubscriber(em, vault, tenant, { email, firstName: null, lastName: null });
      await addSubscribers(em, vault, tenant, list.id, [subscriber.id]);
      const linkFor = (origin: string) =>
        confirmUrl(vault, origin, { listId: list.id, subscriberId: subscriber.id, email });
      return { tenant, key: keys.live, linkFor };
    });
  } finally {
    await orm.close(true);
  }
}

/** Processes of the service: the entry and its arguments. */
export const PROGRAMS = {
  api: ["api/main.ts"],
  dispatch: ["workers/main.ts", "--pool", "dispatch"],
  webhooks: ["workers/main.ts", "--pool", "webhooks"],
} as const;
export type Program = keyof typeof PROGRAMS;

const environment = async (settings: Record<string, string>) => ({
  ...(await workerSettings()),
  PORT: "0",
  ...settings,
});

export async function runToEnd(
  args: readonly string[],
  settings: Record<string, string>,
): Promise<{ code: number; stdout: string; stderr: string }> {
  const [entry, ...rest] = args;
  const child = spawn(process.execPath, [`${ROOT}/${entry}`, ...rest], {
    stdio: ["ignore", "pipe", "pipe"],
    env: await environment(settings),
  });
  const [stdout, stderr, [code]] = await Promise.all([text(child.stdout), text(child.stderr), once(child, "exit")]);
  return { code, stdout, stderr };
}

export async function startApi(settings: Record<string, string>) {
  const child = fork(`${ROOT}/api/main.ts`, {
    env: await environment(settings),
    stdio: ["ignore", "ignore", "ignore", "ipc"],
  });
  const ended = once(child, "exit");
  const [message] = (await Promise.race([
    once(child, "message"),
    ended.then(([code]) => Promise.reject(new Error(`the API ended with ${code} instead of getting ready`))),
  ])) as [{ port: number; healthPort: number }];
  const origin = `http://127.0.0.1:${message.port}`;
  return {
    pid: child.pid,
    origin,
    base: `${origin}/api/v2`,
    /** Base URL of its health and metrics. */
    health: `http://127.0.0.1:${message.healthPort}`,
    ended,
    stop: async () => {
      child.kill("SIGKILL");
      await ended;
    },
  };
}
