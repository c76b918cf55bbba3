import { CompiledQuery, type QueryResult, sql } from "kysely";
import { allowTransaction, nameStatement } from "./named-statements.ts";
import { type EntityManager, kysely } from "./orm.ts";

/** A statement of Kysely's builder or of its `sql` tag. */
interface Compilable<Row> {
  compile(db: ReturnType<typeof kysely>): CompiledQuery<Row>;
}

/** A statement with a fixed text, with `$1` for the first value: building the text at each call would cost CPU time. */
export const textStatement = <Row>(text: string, values: readonly unknown[]): Compilable<Row> => ({
  compile: () => CompiledQuery.raw(text, [...values]) as CompiledQuery<Row>,
});

/** Texts of statements that `compileOnce` has compiled. */
let compiled = 0;
/**
 * Well above the number of statements in this project. Past it statements get no name, because names for ever new texts
 * would fill the memory of Postgres.
 */
const MAX_COMPILED = 1_000;

/** Stands in a compiled statement for a value that each run supplies. */
class Placeholder {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** Values of a statement by their names; an undefined value is not part of the statement. */
export type NamedValues = Readonly<Record<string, unknown>>;

/** A statement that was compiled once and is run with other values each time. */
export interface CompiledStatement<Row> {
  /** The `pg` query with these values; each name that was part of the statement has one. */
  with: (values: NamedValues) => { text: string; values: unknown[]; name?: string };
  /** Carries the type of the rows; the property does not exist at run time. */
  readonly row?: Row;
}

/**
 * Compiles a statement that is built from parts, to be run many times: building and compiling it takes longer than
 * running it. Connections prepare it under a name of its own.
 * @param given the values of the first run, of which only those that are undefined matter
 * @param build is given a placeholder for each value
 */
export function compileOnce<Values extends NamedValues, Row>(
  em: EntityManager,
  given: Values,
  build: (values: Values) => Compilable<Row>,
): CompiledStatement<Row> {
  const placeholders = Object.entries(given).map(([name, value]) => [
    name,
    value === undefined ? value : new Placeholder(name),
  ]);
  const { sql: text, parameters } = build(Object.fromEntries(placeholders) as Values).compile(kysely(em));
  const name = compiled < MAX_COMPILED ? { name: `compiled_${compiled++}` } : {};
  return {
    with: (values) => ({
      text,
      values: parameters.map((value) => (value instanceof Placeholder ? values[value.name] : value)),
      ...name,
    }),
  };
}

/**
 * Runs a statement that each connection parses once, and plans a few times, instead of at every call. For the few
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

/** Gives each statement of a transaction this time, instead of that of its process (`STATEMENT_SECONDS`). */
export async function limitStatements(em: EntityManager, ms: number): Promise<void> {
  const db = kysely(em);
  const statement = sql`select set_config('statement_timeout', ${`${ms}ms`}, true)`.compile(db);
  const parameters = [...statement.parameters];
  allowTransaction(parameters, ms);
  await db.executeQuery({ ...statement, parameters });
}

/**
 * Declares a statement that is compiled at its first run, for those that run hundreds of times a second and are built from
 * parts. Each run gives a value for every name, null where there is none.
 * @param build is given a placeholder for each value
 * @returns runs it, in the transaction of `em` if it is in one
 */
export function defineStatement<Values extends NamedValues, Row>(
  build: (em: EntityManager, values: Values) => Compilable<Row>,
): (em: EntityManager, values: Values) => Promise<QueryResult<Row>> {
  let compiled: CompiledStatement<Row> | undefined;
  return (em, values) => {
    compiled ??= compileOnce(em, values, (given) => build(em, given));
    const { text, values: parameters, name } = compiled.with(values);
    const statement = textStatement<Row>(text, parameters);
    return name === undefined
      ? kysely(em).executeQuery(statement.compile(kysely(em)))
      : executePrepared(em, name, statement);
  };
}
