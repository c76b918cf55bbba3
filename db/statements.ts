import { CompiledQuery, type QueryResult, sql } from "kysely";
import { type EntityManager, kysely } from "./orm.ts";
import { type RunOptions, setRunOptions } from "./pool.ts";

/*
 * Statements that run hundreds of times a second are prepared by name, so that a connection parses each once. All others
 * are not: their text differs with what is asked, or Postgres has to plan them for the values of each call.
 */

/** A statement of Kysely's builder or of its `sql` tag. */
interface Compilable<Row> {
  compile(db: ReturnType<typeof kysely>): CompiledQuery<Row>;
}

/** A statement with a fixed text, with `$1` for the first value: building the text at each call would cost CPU time. */
export const textStatement = <Row>(text: string, values: readonly unknown[]): Compilable<Row> => ({
  compile: () => CompiledQuery.raw(text, [...values]) as CompiledQuery<Row>,
});

/** Runs a compiled statement with a list of values that is this run's own: its options are known by the list. */
function run<Row>(
  em: EntityManager,
  compiled: CompiledQuery<Row>,
  parameters: readonly unknown[],
  options: RunOptions,
): Promise<QueryResult<Row>> {
  setRunOptions(parameters, options);
  return kysely(em).executeQuery({ ...compiled, parameters });
}

/**
 * Runs a statement that is prepared, in the transaction of `em` if it is in one.
 * @param name always the same for the same text, and for that text alone
 */
export function executePrepared<Row>(
  em: EntityManager,
  name: string,
  statement: Compilable<Row>,
): Promise<QueryResult<Row>> {
  const compiled = statement.compile(kysely(em));
  return run(em, compiled, [...compiled.parameters], { name });
}

/** Stands in a compiled statement for a value that each run supplies. */
class Placeholder {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

/** Values of a statement by their names. */
export type NamedValues = Readonly<Record<string, unknown>>;

/** Runs a statement that `defineStatement` declared. */
export type DefinedStatement<Values, Row> = (em: EntityManager, values: Values) => Promise<QueryResult<Row>>;

/** Statements that were declared and have run. */
let defined = 0;
/** Past it statements are not prepared: the pages of lists differ by their filters, and each would take memory of Postgres. */
const MAX_DEFINED = 1_000;

/**
 * Declares a statement that is built from parts: it is compiled at its first run and prepared.
 * @param build is given a placeholder for each value of the first run, or undefined for one that is not given: no run may
 * differ in that
 */
export function defineStatement<Values extends NamedValues, Row>(
  build: (em: EntityManager, values: Values) => Compilable<Row>,
): DefinedStatement<Values, Row> {
  let compiled: { query: CompiledQuery<Row>; parameters: readonly unknown[]; options: RunOptions } | undefined;
  const compile = (em: EntityManager, values: Values) => {
    const entries = Object.entries(values).map(([name, value]) => [
      name,
      value === undefined ? value : new Placeholder(name),
    ]);
    const { sql: text, parameters } = build(em, Object.fromEntries(entries) as Values).compile(kysely(em));
    const query = CompiledQuery.raw(text) as CompiledQuery<Row>;
    return { query, parameters, options: defined < MAX_DEFINED ? { name: `defined_${defined++}` } : {} };
  };
  return (em, values) => {
    compiled ??= compile(em, values);
    const { query, parameters, options } = compiled;
    const filled = parameters.map((value) => (value instanceof Placeholder ? values[value.name] : value));
    return run(em, query, filled, options);
  };
}

/** Gives each statement of a transaction this time, instead of that of its process (`STATEMENT_SECONDS`). */
export async function limitStatements(em: EntityManager, ms: number): Promise<void> {
  const compiled = sql`select set_config('statement_timeout', ${`${ms}ms`}, true)`.compile(kysely(em));
  await run(em, compiled, [...compiled.parameters], { transactionMs: ms });
}
