import { CompiledQuery, type RawBuilder, sql } from "kysely";
import pg from "pg";
import { CopyOutQuery, CopyPipe, copyComment, writeCopy } from "./copy-query.ts";
import { type EntityManager, kysely } from "./orm.ts";
import { KEEP_ALIVE, limitSession } from "./pool.ts";

/** How long the reading connection may take to open, in ms. */
const CONNECT_MS = 5_000;
/**
 * How long it waits for a lock, in seconds. The transaction that writes may hold a lock that a migration waits for, and the
 * reading one would wait behind the migration: a deadlock that Postgres does not see.
 */
const LOCK_SECONDS = 5;

/** The connection that reads. */
export interface CopyReader {
  databaseUrl: string;
  /** How long its statement may take, in ms. */
  statementMs: number;
}

/**
 * Inserts the rows of a query by COPY: faster than `insert … select`, which writes row by row, and reads on the core that
 * writes. Another connection reads, in the snapshot of this transaction, and this one writes those rows. The other one is
 * opened for it and is of no pool: others that wait for the locks of this transaction may hold all connections of its pool.
 *
 * The query must not use the clock: `now()` differs on the other connection. It does not see changes of this transaction. Its
 * columns must have exactly the types of the table's.
 * @param em in a transaction under REPEATABLE READ that has run a statement
 * @param target the table with its columns, e.g. `people (id, name)`
 * @returns how many rows were inserted
 */
export async function insertByCopy(
  em: EntityManager,
  target: string,
  select: RawBuilder<unknown>,
  reader: CopyReader,
): Promise<number> {
  const db = kysely(em);
  const query = withLiterals(select.compile(db));
  const { rows } = await sql<{ snapshot: string }>`select pg_export_snapshot() as snapshot`.execute(db);
  const [exported] = rows;
  if (!exported) throw new Error("Postgres exported no snapshot");
  const { snapshot } = exported;
  const comment = copyComment(snapshot);
  const pipe = new CopyPipe();
  const parameters: unknown[] = [];
  writeCopy(parameters, pipe);
  const writing = db
    .executeQuery({ ...CompiledQuery.raw(`${comment} copy ${target} from stdin (format binary)`), parameters })
    .catch((error) => pipe.failWriting(error));
  const reading = pipe.writerWaits
    .then(() => readRows(reader, snapshot, `${comment} copy (${query}) to stdout (format binary)`, pipe))
    .catch((error) => pipe.failReading(error));
  await Promise.all([reading, writing]);
  // When one side fails, the pipe ends the other one.
  if (pipe.failure) throw pipe.failure;
  return pipe.rows;
}

async function readRows(
  { databaseUrl, statementMs }: CopyReader,
  snapshot: string,
  text: string,
  pipe: CopyPipe,
): Promise<void> {
  const client = new pg.Client({
    connectionString: databaseUrl,
    application_name: "mailkeel copy",
    connectionTimeoutMillis: CONNECT_MS,
    ...KEEP_ALIVE,
  });
  // Its statement fails too; an error without a listener would end the process.
  client.on("error", () => {});
  try {
    await client.connect();
    await limitSession("sends")(client);
    await client.query(`begin isolation level repeatable read read only;
      set transaction snapshot ${pg.escapeLiteral(snapshot)};
      set local lock_timeout = '${LOCK_SECONDS}s'; set local statement_timeout = '${statementMs}ms'`);
    const { promise, resolve, reject } = Promise.withResolvers<void>();
    client.query(new CopyOutQuery(pipe, text, (error) => (error ? reject(error) : resolve())) as unknown as pg.Query);
    await promise;
  } finally {
    await client.end().catch(() => undefined);
  }
}

/** COPY takes no parameters: their values become a part of the text. */
function withLiterals({ sql: text, parameters }: CompiledQuery): string {
  return text.replaceAll(/\$(\d+)/g, (_placeholder, number) => literalOf(parameters[Number(number) - 1]));
}

function literalOf(value: unknown): string {
  if (Array.isArray(value)) return `array[${value.map(literalOf).join(", ")}]::text[]`;
  if (typeof value === "string") return pg.escapeLiteral(value);
  if (typeof value === "boolean" || Number.isFinite(value)) return `(${value})`;
  throw new Error(`no literal for a value of type ${typeof value}`);
}
