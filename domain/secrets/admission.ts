import { hkdfSync, randomBytes } from "node:crypto";
import type { Env, SecretKey } from "../../config/env.ts";
import { type DatabaseOptions, type EntityManager, type MikroORM, type OnConnect, openDatabase } from "../../db/orm.ts";
import { sealContext, type Vault } from "./crypto.ts";

/*
 * A process works on a database only with the keys that the database was used with. With others it would send links that
 * no process accepts, and seal passwords that no process can open.
 */

/** The database refuses a process: the message names the setting and the remedy, in one line. */
export class AdmissionError extends Error {
  override name = "AdmissionError";
}

export const KEY_SETTINGS = ["SIGNING_SECRET", "ENCRYPTION_KEYS"] as const;
export type KeySetting = (typeof KEY_SETTINGS)[number];

const BYTES = 32;

/** Tells nothing about a key of random bytes. */
const fingerprintOf = (key: string): string =>
  Buffer.from(hkdfSync("sha256", Buffer.from(key, "base64"), "", "mailkeel/fingerprint", BYTES)).toString("base64url");

interface Fingerprint {
  setting: KeySetting;
  key_id: string;
  fingerprint: string;
  used: boolean;
  retired: boolean;
}

type Connection = Parameters<OnConnect>[0];

const UNDEFINED_TABLE = "42P01";

async function readFingerprints(connection: Connection): Promise<Fingerprint[]> {
  try {
    const { rows } = await connection.query<Fingerprint>(
      `select setting, key_id, fingerprint, used_since is not null as used, retired_at is not null as retired
       from secret_fingerprints`,
    );
    return rows;
  } catch (error) {
    if (!(error instanceof Error && "code" in error && error.code === UNDEFINED_TABLE)) throw error;
    throw new AdmissionError("DATABASE_URL: the database has no schema yet; `npm run prepare:cluster` makes it.");
  }
}

/**
 * Compares the keys of a setting with the fingerprints, and adds those of new keys. A key rotates in two steps: every
 * process first gets the new key behind the old one, then in front of it. A retired key may stand behind others, so that
 * no process that is started again fails before its settings are changed.
 * @param keys the first one signs or encrypts
 * @throws {AdmissionError} for another key than the known one of its id, for a new or retired key in the first place, and
 * for a missing key that was used
 */
async function checkKeys(connection: Connection, setting: KeySetting, keys: readonly SecretKey[]): Promise<void> {
  const known = (await readFingerprints(connection)).filter((row) => row.setting === setting);
  const given = new Map(keys);
  for (const { key_id: id, fingerprint } of known) {
    const key = given.get(id);
    if (key !== undefined && fingerprintOf(key) !== fingerprint) {
      throw new AdmissionError(
        `${setting}: the key ${id} is not the one that this database is used with. Give it that one; ` +
          "`npm start` reads it from the secrets.json of the backup.",
      );
    }
  }
  const [[first] = [""]] = keys;
  if (known.some(({ key_id, retired }) => retired && key_id === first)) {
    throw new AdmissionError(`${setting}: the key ${first} is retired. Take it out of this setting.`);
  }
  const missing = known.find(({ key_id, used, retired }) => used && !retired && !given.has(key_id));
  if (missing) {
    throw new AdmissionError(
      `${setting}: the key ${missing.key_id} is missing, which this database is used with. ` +
        "`npm run app -- secrets:status` says when a key may go.",
    );
  }
  const ids = new Set(known.map(({ key_id }) => key_id));
  if (known.some(({ retired }) => !retired) && !ids.has(first)) {
    throw new AdmissionError(
      `${setting}: the key ${first} is new to this database and stands first. ` +
        "Give it to every process in the last place, and only then in the first.",
    );
  }

  for (const [id, key] of keys.filter(([each]) => !ids.has(each))) {
    const { rowCount } = await connection.query(
      `insert into secret_fingerprints (setting, key_id, fingerprint, used_since)
       values ($1, $2, $3, case when $4 then now() end) on conflict do nothing`,
      [setting, id, fingerprintOf(key), id === first],
    );
    // Another process has just added a key under this id: it may be another key.
    if (rowCount === 0) return checkKeys(connection, setting, keys);
  }
  if (known.some(({ key_id, used }) => key_id === first && !used)) {
    await connection.query(
      "update secret_fingerprints set used_since = now() where setting = $1 and key_id = $2 and used_since is null",
      [setting, first],
    );
  }
}

const HASH_KEY = "hash";

async function loadHashKey(connection: Connection, vault: Vault): Promise<void> {
  const context = sealContext("database_keys", "encrypted_key", HASH_KEY);
  for (;;) {
    const { rows } = await connection.query<{ encrypted_key: string }>(
      "select encrypted_key from database_keys where name = $1",
      [HASH_KEY],
    );
    const [row] = rows;
    if (row) return vault.setHashKey(vault.decrypt(row.encrypted_key, context));
    const sealed = vault.encrypt(randomBytes(BYTES).toString("base64"), context);
    await connection.query(
      "insert into database_keys (name, encrypted_key) values ($1, $2) on conflict (name) do nothing",
      [HASH_KEY, sealed],
    );
  }
}

/** @throws {AdmissionError} when the role is a superuser or owns a database, itself or as a member */
async function checkRole(connection: Connection): Promise<void> {
  const { rows } = await connection.query<{ role: string; owns: boolean }>(
    `select current_user as role,
       exists (select from pg_database where pg_has_role(current_user, datdba, 'MEMBER')) as owns`,
  );
  const [row] = rows;
  if (!row?.owns) return;
  throw new AdmissionError(
    `DATABASE_URL: the role ${row.role} is a superuser or owns a database. Name a role that reads and writes the tables ` +
      "alone; `npm run prepare:cluster` makes it, with the owner's role in MIGRATION_DATABASE_URL.",
  );
}

type Settings = Pick<Env, "DATABASE_URL" | (typeof KEY_SETTINGS)[number]>;

async function admit(connection: Connection, settings: Settings, vault: Vault): Promise<void> {
  await checkRole(connection);
  for (const setting of KEY_SETTINGS) {
    if (settings[setting].length > 0) await checkKeys(connection, setting, settings[setting]);
  }
  if (settings.ENCRYPTION_KEYS.length > 0) await loadHashKey(connection, vault);
}

export interface AdmittedDatabase {
  orm: MikroORM;
  /**
   * @returns why Postgres cannot be used at present; undefined when it can
   * @throws {AdmissionError} when it refuses this process
   */
  connect(): Promise<unknown>;
}

/** Opens the pool of a process. No connection is used before the first one has admitted the process. */
export async function openAdmitted(
  settings: Settings,
  vault: Vault,
  options: Omit<DatabaseOptions, "onConnect">,
): Promise<AdmittedDatabase> {
  let refusal: AdmissionError | undefined;
  let admission: Promise<void> | undefined;
  const onConnect: OnConnect = (connection) => {
    admission ??= admit(connection, settings, vault).catch((error) => {
      if (error instanceof AdmissionError) refusal = error;
      // A connection that was cut off says nothing about the keys: the next one tries again.
      admission = undefined;
      throw error;
    });
    return admission;
  };
  const orm = await openDatabase(settings.DATABASE_URL, { ...options, onConnect });
  return {
    orm,
    connect: async () => {
      try {
        await orm.em.fork().execute("select 1");
        return undefined;
      } catch (error) {
        // MikroORM wraps the errors of a connection.
        if (refusal) throw refusal;
        return error;
      }
    },
  };
}

/** Waits for the key of the database's hashes: a process that started without Postgres gets it with its first connection. */
export async function awaitHashKey(em: EntityManager, vault: Vault): Promise<void> {
  if (!vault.canHash()) await em.fork().execute("select 1");
}
