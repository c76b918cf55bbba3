import { setTimeout as delay } from "node:timers/promises";
import { Migrator } from "@mikro-orm/migrations";
import { defineConfig, EntityManager, EntitySchema, type InferKyselyDB, MikroORM } from "@mikro-orm/postgresql";
import { type ColumnType, type Kysely, sql } from "kysely";
import type { ClientBase } from "pg";
import * as declared from "./entities/index.ts";
import {
  type AroundStatement,
  answerLimitMs,
  type Client,
  type ConnectionPool,
  heedStatements,
  KEEP_ALIVE,
  limitSession,
  limitSilence,
  reclaimLostConnections,
  shareConnections,
  type WorkKind,
} from "./pool.ts";
import { ensureRole, grantAccess, loginOf } from "./roles.ts";
import type { Tenant } from "./tenant.ts";
import { isLockTimeout } from "./unreachable.ts";

export { ofTenant, type Tenant } from "./tenant.ts";
export { EntityManager, MikroORM };

/*
 * MikroORM serves one aggregate at a time and the schema; Kysely serves sets, joins, bulk work and statements with
 * conditions. A function works with one of the two shapes of a row: an entity (camelCase, instants as `Date`) or a
 * Kysely row (snake_case, instants as text).
 */

type Declared = typeof declared;
type Entity = Extract<Declared[keyof Declared], EntitySchema>;
/** A table is what a file of `entities` exports as a schema. */
const entities = Object.values<unknown>(declared).filter((each): each is Entity => each instanceof EntitySchema);

/** MikroORM turns off the driver's parsing of dates, and a bigint may be larger than a number can hold. */
type Read<Value> = Value extends Date | bigint ? string : Value;
type Written<Value> = Value extends Date ? Date | string : Value extends bigint ? bigint | number | string : Value;
type AsRead<Column> =
  Column extends ColumnType<infer Select, infer Insert, infer Update>
    ? ColumnType<Read<Select>, Written<Insert>, Written<Update>>
    : ColumnType<Read<Column>, Written<Column>, Written<Column>>;
type Tables = InferKyselyDB<Entity>;

export type Database = { [Table in keyof Tables]: { [Column in keyof Tables[Table]]: AsRead<Tables[Table][Column]> } };

/** Called with each new connection before its first use; a connection that it rejects is closed. */
export type OnConnect = (client: Pick<ClientBase, "query">) => Promise<void>;

export interface DatabaseOptions {
  poolMax?: number;
  work?: WorkKind;
  /** In ms; as the work allows unless given. */
  answerMs?: number | undefined;
  onPool?: (pool: ConnectionPool) => void;
  onConnect?: OnConnect;
  /** Runs each statement. */
  aroundStatement?: AroundStatement;
}

const ormConfig = (
  databaseUrl: string,
  {
    poolMax = 10,
    work = "command",
    answerMs = answerLimitMs(work),
    onPool,
    onConnect,
    aroundStatement,
  }: DatabaseOptions,
) =>
  defineConfig({
    clientUrl: databaseUrl,
    entities,
    extensions: [Migrator],
    pool: { min: 0, max: poolMax },
    // Dates are read and written in UTC, in any time zone of the machine.
    timezone: "Z",
    forceUtcTimezone: true,
    driverOptions: {
      application_name: "mailkeel",
      connectionTimeoutMillis: 5_000,
      ...KEEP_ALIVE,
      // A statement is sent when it is there, and does not wait for the answers to those before it.
      pipeline: true,
      onConnect: async (client: ClientBase & Client) => {
        limitSilence(client, answerMs);
        await limitSession(work)(client);
        await onConnect?.(client);
      },
      onPoolCreated: (pool: ConnectionPool) => {
        reclaimLostConnections(pool);
        if (work === "request") shareConnections(pool, poolMax);
        onPool?.(pool);
        heedStatements(pool, answerMs, aroundStatement);
      },
    },
    migrations: {
      path: `${import.meta.dirname}/migrations`,
      glob: "!(*.d).ts",
      snapshot: true,
      snapshotName: ".snapshot-mailkeel",
      // It is a file of the code: a database that is migrated has nothing to write there.
      snapshotOnMigrate: false,
      safe: true,
      emit: "ts",
      transactional: true,
      silent: true,
    },
  });

/** Connections are made when they are first needed, so Postgres may be away meanwhile. */
export async function openDatabase(databaseUrl: string, options: DatabaseOptions = {}): Promise<MikroORM> {
  const orm = await MikroORM.init(ormConfig(databaseUrl, options));
  await orm.em.getDriver().getConnection().connect({ skipOnConnect: true });
  return orm;
}

/** Meanwhile every other statement on the table waits behind the migration, so it is shorter than a request's time. */
const MIGRATION_LOCK_MS = 5_000;

export class MigrationBlockedError extends Error {
  constructor(cause: unknown) {
    super(
      `A migration waited ${MIGRATION_LOCK_MS / 1_000} s for a lock that another transaction holds, and gave up, because every ` +
        "query on the table would have waited behind it. It changed nothing. Look for the transaction in pg_stat_activity by " +
        "its xact_start, wait for its end or end it with pg_terminate_backend, and migrate again.",
      { cause },
    );
  }
}

const MIGRATION_LOCK = "mailkeel/migrations";

/** SQLSTATEs for a database that another process creates at this moment. */
const CREATED_MEANWHILE = new Set(["42P04", "23505", "55006"]);
const CREATE_ATTEMPTS = 20;

/**
 * Creates the database, its schema and the application's role as far as they are missing. Any number of processes may
 * call this at once: one migrates, the others wait for it.
 * @param ownerUrl the database, with the role that owns it
 * @param applicationUrl the same with the role of the API and the workers; only its name and password are read
 * @throws {MigrationBlockedError} when another transaction keeps it from a table for long
 */
export async function migrate(ownerUrl: string, applicationUrl: string): Promise<void> {
  const application = loginOf(applicationUrl);
  if (application.name === loginOf(ownerUrl).name) {
    throw new Error(`The database's owner and the application must be two roles; both are ${application.name}`);
  }
  await ensureDatabase(ownerUrl);
  // One connection holds the lock, the other one migrates.
  const limitLocks: OnConnect = async (client) => {
    await client.query(`set lock_timeout = '${MIGRATION_LOCK_MS}ms'`);
  };
  const orm = await openDatabase(ownerUrl, { poolMax: 2, work: "migration", onConnect: limitLocks });
  try {
    await ensureRole(kysely(orm.em.fork()), application);
    await kysely(orm.em.fork())
      .transaction()
      .execute(async (tx) => {
        // Held by a transaction, not by a session, so that it also works behind a pooler.
        await sql`set local idle_in_transaction_session_timeout = 0`.execute(tx);
        // For another process that migrates, this one waits.
        await sql`set local lock_timeout = 0`.execute(tx);
        await sql`select pg_advisory_xact_lock(hashtextextended(${MIGRATION_LOCK}, 0))`.execute(tx);
        await orm.migrator.up();
        await sql`set local lock_timeout = ${sql.lit(`${MIGRATION_LOCK_MS}ms`)}`.execute(tx);
        await grantAccess(tx, application);
      });
  } catch (error) {
    throw isLockTimeout(error) ? new MigrationBlockedError(error) : error;
  } finally {
    await orm.close(true);
  }
}

async function ensureDatabase(databaseUrl: string): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const orm = await openDatabase(databaseUrl, { poolMax: 1 });
    try {
      await orm.schema.ensureDatabase();
      return;
    } catch (error) {
      const code = error instanceof Error && "code" in error ? String(error.code) : "";
      if (!CREATED_MEANWHILE.has(code) || attempt === CREATE_ATTEMPTS) throw error;
      await delay(Math.random() * 50 * attempt);
    } finally {
      await orm.close(true);
    }
  }
}

export function tenantOf(em: EntityManager): Tenant {
  const tenant: Partial<Tenant> | undefined = em.getFilterParams<Partial<Tenant>>("tenant");
  if (!tenant?.teamId || !tenant.environment) throw new Error("this entity manager has no tenant");
  return { teamId: tenant.teamId, environment: tenant.environment };
}

export function kysely(em: EntityManager): Kysely<Database> {
  return em.getKysely<Database>();
}

/** Sees the rows of one tenant only, in the transaction of `em` if it is in one. */
export function forTenant(em: EntityManager, { teamId, environment }: Tenant): EntityManager {
  const fork = em.fork({ keepTransactionContext: true });
  fork.setFilterParams("tenant", { teamId, environment });
  return fork;
}
