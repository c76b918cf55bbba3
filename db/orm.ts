import { Migrator } from "@mikro-orm/migrations";
import { defineConfig, EntityManager, type InferKyselyDB, MikroORM } from "@mikro-orm/postgresql";
import type { ColumnType, Kysely } from "kysely";
import { accountEntities } from "./entities/account.ts";
import { audienceEntities } from "./entities/audience.ts";
import { idempotencyEntities } from "./entities/idempotency.ts";
import { sendEntities } from "./entities/send.ts";
import { teamEntities } from "./entities/team.ts";
import { webhookEntities } from "./entities/webhook.ts";
import { prepareNamed } from "./named-statements.ts";
import { type ConnectionPool, endIdleTransactions, prepareMarked, reclaimDeadConnections } from "./pool.ts";
import type { Tenant } from "./tenant.ts";

export { ofTenant, type Tenant } from "./tenant.ts";
export { EntityManager, MikroORM };

const entities = [
  ...teamEntities,
  ...audienceEntities,
  ...accountEntities,
  ...sendEntities,
  ...idempotencyEntities,
  ...webhookEntities,
] as const;

/** MikroORM turns off the driver's parsing of dates: Kysely reads an instant as Postgres's text. */
type InstantColumn = string;
type AsRead<Column> =
  Column extends ColumnType<infer Select, infer Insert, infer Update>
    ? ColumnType<
        Date extends Select ? Exclude<Select, Date> | InstantColumn : Select,
        Date extends Insert ? Insert | string : Insert,
        Date extends Update ? Update | string : Update
      >
    : Date extends Column
      ? ColumnType<Exclude<Column, Date> | InstantColumn, Column | string, Column | string>
      : Column;
type Tables = InferKyselyDB<(typeof entities)[number]>;

/** Every table with its columns as Kysely reads and writes them. */
export type Database = { [Table in keyof Tables]: { [Column in keyof Tables[Table]]: AsRead<Tables[Table][Column]> } };

export const ormConfig = (databaseUrl: string, poolMax = 10, onPool?: (pool: ConnectionPool) => void) =>
  defineConfig({
    clientUrl: databaseUrl,
    entities: [...entities],
    extensions: [Migrator],
    pool: { min: 0, max: poolMax },
    // Dates come and go in UTC whatever the machine's zone is.
    timezone: "Z",
    forceUtcTimezone: true,
    driverOptions: {
      application_name: "mailkeel",
      connectionTimeoutMillis: 5_000,
      keepAlive: true,
      onConnect: endIdleTransactions,
      onPoolCreated: (pool: ConnectionPool) => {
        reclaimDeadConnections(pool);
        prepareMarked(pool);
        prepareNamed(pool);
        onPool?.(pool);
      },
    },
    migrations: {
      path: `${import.meta.dirname}/migrations`,
      glob: "!(*.d).ts",
      snapshot: true,
      snapshotName: ".snapshot-mailkeel",
      safe: true,
      emit: "ts",
      transactional: true,
      silent: true,
    },
  });

/**
 * Opens the pool. Connections are made when they are first needed, so Postgres may be away meanwhile.
 * @param onPool is given the pool, to watch it
 */
export async function openDatabase(
  databaseUrl: string,
  poolMax?: number,
  onPool?: (pool: ConnectionPool) => void,
): Promise<MikroORM> {
  const orm = await MikroORM.init(ormConfig(databaseUrl, poolMax, onPool));
  await orm.em.getDriver().getConnection().connect({ skipOnConnect: true });
  return orm;
}

/** Brings the schema up to date; safe to run from several processes at once. */
export async function migrate(databaseUrl: string): Promise<void> {
  const orm = await openDatabase(databaseUrl, 2);
  try {
    await orm.schema.ensureDatabase();
    await orm.migrator.up();
  } finally {
    await orm.close(true);
  }
}

/** Kysely inside the transaction of `em`, if it is in one. */
export function kysely(em: EntityManager): Kysely<Database> {
  return em.getKysely<Database>();
}

/** An entity manager of its own identity map that sees the rows of one tenant only. */
export function forTenant(em: EntityManager, { teamId, environment }: Tenant): EntityManager {
  const fork = em.fork();
  fork.setFilterParams("tenant", { teamId, environment });
  return fork;
}
