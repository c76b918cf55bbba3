import { randomBytes } from "node:crypto";
import { existsSync } from "node:fs";
import { readFile, rename, writeFile } from "node:fs/promises";
import { StackError } from "./processes.ts";

/** A team to try things with, and its keys. */
export interface Demo {
  team: { id: string; owner: string };
  keys: { live: string; test: string; cleanup: string };
}

/** `.data/stack.json`: where a running stack is, for scripts. It exists while everything is ready. */
export interface StackFile extends Demo {
  api: string;
  /** Postgres with the application's role and its password. */
  database: string;
  /** The same with the role that owns the database. */
  migrationDatabase: string;
  /** `ui` is null when TEMPORAL_ADDRESS names a cluster of the user's own. */
  temporal: { address: string; namespace: string; ui: string | null };
  mail: { smtp: string; api: string };
  /** Address at which a receiver of webhooks may listen; null when WEBHOOK_ALLOWED_HOSTS names others. */
  webhooks: { receiver: string | null };
  /** Base URL of the health and metrics of the API and of each worker pool. */
  health: Record<string, string>;
  /** Settings of its workers, secrets included: for the command line. */
  settings: Record<string, string>;
  /** Process ids by name; a process that was started again has its new one. */
  pids: Record<string, number>;
}

/** `.data/secrets.json`: the secrets that the stack made for this data folder. */
export interface Secrets {
  signingSecret: string;
  encryptionKeys: string;
  postgresPasswords: { owner: string; application: string };
  /** The demo team of each database that was used with this folder. */
  demos: Record<string, Demo>;
}

/**
 * Writes a file that only its owner reads, in one step: a reader finds the old content or the new. Only the stack that holds
 * the lock of the folder writes, one file after the other.
 */
export async function writeJson(file: string, content: unknown): Promise<void> {
  const draft = `${file}.tmp`;
  await writeFile(draft, `${JSON.stringify(content, null, 2)}\n`, { mode: 0o600 });
  await rename(draft, file);
}

const secretsFile = (dataDir: string) => `${dataDir}/secrets.json`;

export const hasDatabase = (dataDir: string): boolean =>
  existsSync(`${dataDir}/postgres`) || existsSync(`${dataDir}/postgres.path`);

/**
 * Reads the secrets of a data folder, or makes them up at its first use.
 * @throws {StackError} when the folder has a database whose secrets are lost
 */
export async function loadSecrets(dataDir: string): Promise<Secrets> {
  const file = secretsFile(dataDir);
  if (existsSync(file)) {
    try {
      return JSON.parse(await readFile(file, "utf8")) as Secrets;
    } catch (cause) {
      // It may be there, whole, and another user's: then nothing is to be deleted.
      if (!(cause instanceof SyntaxError)) {
        throw new StackError(`${file} cannot be read: give it to the user who starts Mailkeel (chown).`, { cause });
      }
      throw new StackError(`${file} cannot be read. Restore it, or delete ${dataDir} to start afresh.`, { cause });
    }
  }
  if (hasDatabase(dataDir)) {
    throw new StackError(
      `${dataDir} holds a database but not its secrets.json. Restore that file, or delete ${dataDir} to start afresh.`,
    );
  }
  const secrets: Secrets = {
    signingSecret: randomBytes(32).toString("base64"),
    encryptionKeys: `k1:${randomBytes(32).toString("base64")}`,
    postgresPasswords: {
      owner: randomBytes(18).toString("base64url"),
      application: randomBytes(18).toString("base64url"),
    },
    demos: {},
  };
  await saveSecrets(dataDir, secrets);
  return secrets;
}

export async function saveSecrets(dataDir: string, secrets: Secrets): Promise<void> {
  await writeJson(secretsFile(dataDir), secrets);
}
