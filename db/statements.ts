import { CompiledQuery, type QueryResult } from "kysely";
import { type EntityManager, kysely } from "./orm.ts";
import { LIMIT_STATEMENTS, prepare } from "./pool.ts";

export { PATIENT_MS } from "./pool.ts";

/*
 * Statements that run hundreds of times a second are prepared. All others are not: their text differs with what is
 * asked, or Postgres has to plan them for the values of each call.
 */

interface Compilable<Row> {
  compile(db: ReturnType<typeof kysely>): CompiledQuery<Row>;
}

/** Its text has few forms. */
export function executePrepared<Row>(em: EntityManager, statement: Compilable<Row>): Promise<QueryResult<Row>> {
  const compiled = statement.compile(kysely(em));
  prepare(compiled.sql);
  return kysely(em).executeQuery(compiled);
}

class Placeholder {
  readonly name: string;

  constructor(name: string) {
    this.name = name;
  }
}

export type NamedValues = Readonly<Record<string, unknown>>;

export type DefinedStatement<Values, Row> = (em: EntityManager, values: Values) => Promise<QueryResult<Row>>;

/**
 * Declares a statement whose text is costly to build: it is compiled at its first run and prepared.
 * @param build is given a placeholder for each value of the first run, or undefined for one that is not given: no run
 * may differ in that
 */
export function defineStatement<Values extends NamedValues, Row>(
  build: (em: EntityManager, values: Values) => Compilable<Row>,
): DefinedStatement<Values, Row> {
  let compiled: CompiledQuery<Row> | undefined;
  const compile = (em: EntityManager, values: Values) => {
    const placeholders = Object.entries(values).map(([name, value]) => [
      name,
      value === undefined ? value : new Placeholder(name),
    ]);
    const { sql: text, parameters } = build(em, Object.fromEntries(placeholders) as Values).compile(kysely(em));
    prepare(text);
    return CompiledQuery.raw(text, [...parameters]) as CompiledQuery<Row>;
  };
  return (em, values) => {
    compiled ??= compile(em, values);
    const parameters = compiled.parameters.map((value) => (value instanceof Placeholder ? values[value.name] : value));
    return kysely(em).executeQuery({ ...compiled, parameters });
  };
}

/** Instead of `STATEMENT_SECONDS`, and of a request's wait for locks, for the rest of a transaction. */
export async function limitStatements(em: EntityManager, ms: number): Promise<void> {
  await kysely(em).executeQuery(CompiledQuery.raw(LIMIT_STATEMENTS, [`${ms}ms`]));
}
