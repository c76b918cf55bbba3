import { CompiledQuery, type QueryResult } from "kysely";
import { nameStatement } from "./named-statements.ts";
import { type EntityManager, kysely } from "./orm.ts";

/** A statement of Kysely's builder or of its `sql` tag. */
interface Compilable<Row> {
  compile(db: ReturnType<typeof kysely>): CompiledQuery<Row>;
}

/** A statement whose text is known, with `$1` for the first value: building one anew at each call costs CPU time. */
export const textStatement = <Row>(text: string, values: readonly unknown[]): Compilable<Row> => ({
  compile: () => CompiledQuery.raw(text, [...values]) as CompiledQuery<Row>,
});

/**
 * Runs a statement that each connection parses once and plans a few times instead of at every call: for the few
 * statements that run hundreds of times a second.
 * @param name always the same for the same text, and for that text alone
 */
export function executePrepared<Row>(
  em: EntityManager,
  name: string,
  statement: Compilable<Row>,
): Promise<QueryResult<Row>> {
  const db = kysely(em);
  const compiled = statement.compile(db);
  const parameters = [...compiled.parameters];
  nameStatement(parameters, name);
  return db.executeQuery({ ...compiled, parameters });
}
