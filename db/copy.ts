import { CompiledQuery, type RawBuilder, sql } from "kysely";
import pg from "pg";
import { CopyPipe, type CopySide, copyComment, takePartInCopy } from "./copy-query.ts";
import { type EntityManager, kysely } from "./orm.ts";
import { IsolationLevel, transaction } from "./transaction.ts";

/**
 * How long the reading connection waits for a lock, in seconds. This transaction may hold a lock that a migration waits for, and
 * the reading one would wait behind the migration: a deadlock that Postgres does not see.
 */
const LOCK_SECONDS = 5;

/**
 * Inserts the rows of a query by COPY: faster than `insert … select`, which writes row by row, and reads on the core that
 * writes. Another connection reads, in the snapshot of this transaction, and this one writes those rows.
 *
 * The query must not use the clock: `now()` differs on the other connection. It does not see changes of this transaction. Its
 * columns must have exactly the types of the table's.
 * @param em in a transaction under REPEATABLE READ that has run a statement; its pool must have a connection for the reader
 * @param target the table with its columns, e.g. `people (id, name)`
 * @param limitReader limits the reading statement in its transaction
 * @returns how many rows were inserted
 */
export async function insertByCopy(
  em: EntityManager,
  target: string,
  select: RawBuilder<unknown>,
  limitReader: (reader: EntityManager) => Promise<void>,
): Promise<number> {
  const db = kysely(em);
  const query = withLiterals(select.compile(db));
  const { rows } = await sql<{ snapshot: string }>`select pg_export_snapshot() as snapshot`.execute(db);
  const [exported] = rows;
  if (!exported) throw new Error("Postgres exported no snapshot");
  const comment = copyComment(exported.snapshot);
  const pipe = new CopyPipe();
  const read = async (reader: EntityManager) => {
    await sql`set transaction snapshot ${sql.lit(exported.snapshot)}`.execute(kysely(reader));
    await sql`set local lock_timeout = ${sql.lit(`${LOCK_SECONDS}s`)}`.execute(kysely(reader));
    await limitReader(reader);
    await runCopy(reader, `${comment} copy (${query}) to stdout (format binary)`, { pipe, role: "reader" });
  };
  const writing = runCopy(em, `${comment} copy ${target} from stdin (format binary)`, { pipe, role: "writer" }).catch(
    (error) => pipe.failWriting(error),
  );
  const options = { isolationLevel: IsolationLevel.REPEATABLE_READ, attempts: 1 };
  const reading = pipe.writerWaits
    .then(() => transaction(em.fork(), read, options))
    .catch((error) => pipe.failReading(error));
  await Promise.all([reading, writing]);
  // When one side fails, the pipe ends the other one.
  if (pipe.failure) throw pipe.failure;
  return pipe.rows;
}

async function runCopy(em: EntityManager, text: string, side: CopySide): Promise<void> {
  const parameters: unknown[] = [];
  takePartInCopy(parameters, side);
  await kysely(em).executeQuery({ ...CompiledQuery.raw(text), parameters });
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
