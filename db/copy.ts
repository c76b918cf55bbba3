import { CompiledQuery, type RawBuilder, sql } from "kysely";
import pg from "pg";
import { CopyPipe, type CopySide, takePartInCopy } from "./copy-query.ts";
import { type EntityManager, kysely } from "./orm.ts";
import { IsolationLevel, transaction } from "./transaction.ts";

/**
 * Inserts the rows of a query by COPY: faster than `insert … select`, which writes row by row, and reads on the core that
 * writes. Another connection reads, in the snapshot of this transaction, and this one writes what it reads.
 *
 * The query must not depend on the clock, whose `now()` is another one on the other connection, nor on changes of this
 * transaction. Its columns must have exactly the types of the table's.
 * @param em in a transaction under REPEATABLE READ; its pool must have a connection for the reader
 * @param target the table with its columns, e.g. `people (id, name)`
 * @param limitStatement limits the reading statement in its transaction
 * @returns how many rows were inserted
 */
export async function insertByCopy(
  em: EntityManager,
  target: string,
  select: RawBuilder<unknown>,
  limitStatement: (reader: EntityManager) => Promise<void>,
): Promise<number> {
  const db = kysely(em);
  const text = withLiterals(select.compile(db));
  const { rows } = await sql<{ snapshot: string }>`select pg_export_snapshot() as snapshot`.execute(db);
  const snapshot = rows[0]?.snapshot ?? "";
  const read = async (reader: EntityManager) => {
    await sql`set transaction snapshot ${sql.lit(snapshot)}`.execute(kysely(reader));
    await limitStatement(reader);
    const pipe = new CopyPipe();
    // For `StalledCopies`.
    const name = `/* copy in snapshot ${snapshot} */`;
    const run = (of: EntityManager, copy: string, side: CopySide) => {
      const parameters: unknown[] = [];
      takePartInCopy(parameters, side);
      return kysely(of).executeQuery({ ...CompiledQuery.raw(copy), parameters });
    };
    const written = run(em, `${name} copy ${target} from stdin (format binary)`, { pipe, reads: false });
    const isWaiting = await Promise.race([pipe.writerWaits, written.then(() => false)]);
    const reading = isWaiting
      ? run(reader, `${name} copy (${text}) to stdout (format binary)`, { pipe, reads: true })
      : Promise.resolve();
    const [, failed] = await Promise.allSettled([reading, written]);
    // Where one fails it makes the other fail; its own failure is the reason.
    if (pipe.failure !== undefined) throw pipe.failure;
    if (failed.status === "rejected") throw failed.reason;
    return pipe.rows;
  };
  return transaction(em.fork(), read, { isolationLevel: IsolationLevel.REPEATABLE_READ, attempts: 1 });
}

/** COPY takes no parameters: their values become a part of the text. */
function withLiterals({ sql: text, parameters }: CompiledQuery): string {
  return text.replaceAll(/\$(\d+)/g, (_placeholder, number) => literalOf(parameters[Number(number) - 1]));
}

function literalOf(value: unknown): string {
  if (Array.isArray(value)) return `array[${value.map(literalOf).join(", ")}]::text[]`;
  if (typeof value === "string") return pg.escapeLiteral(value);
  if (typeof value === "number" || typeof value === "boolean") return String(value);
  throw new Error(`no literal for a value of type ${typeof value}`);
}
