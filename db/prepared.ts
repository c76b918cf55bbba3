import type { EventEmitter } from "node:events";
import type { CompiledQuery, QueryResult } from "kysely";
import { type EntityManager, kysely } from "./orm.ts";

/** A statement of Kysely's builder or of its `sql` tag. */
interface Compilable<Row> {
  compile(db: ReturnType<typeof kysely>): CompiledQuery<Row>;
}

/** What is used here of a `pg` client. */
interface Client {
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
}

/** Names of statements that are on their way to the driver, by their list of values: Kysely passes on nothing else. */
const names = new WeakMap<object, string>();

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
  names.set(parameters, name);
  return db.executeQuery({ ...compiled, parameters });
}

/** Lets the connections of a pool prepare what `executePrepared` names: `pg` prepares a statement that has a name. */
export function prepareNamed(pool: EventEmitter): void {
  pool.on("connect", (client: Client) => {
    const query = client.query.bind(client);
    client.query = (text, values, ...rest) => {
      const name = Array.isArray(values) ? names.get(values) : undefined;
      return name === undefined ? query(text, values, ...rest) : query({ name, text, values });
    };
  });
}
