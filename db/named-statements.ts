import type { EventEmitter } from "node:events";

/** What is used here of a `pg` client. */
interface Client {
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
}

/** Names of statements that are on their way to the driver, by their list of values: Kysely passes on nothing else. */
const names = new WeakMap<object, string>();

/** Names the statement that is about to be run with this list of values. */
export function nameStatement(values: object, name: string): void {
  names.set(values, name);
}

/** Lets the connections of a pool prepare what `nameStatement` names: `pg` prepares a statement that has a name. */
export function prepareNamed(pool: EventEmitter): void {
  pool.on("connect", (client: Client) => {
    const query = client.query.bind(client);
    client.query = (text, values, ...rest) => {
      const name = Array.isArray(values) ? names.get(values) : undefined;
      return name === undefined ? query(text, values, ...rest) : query({ name, text, values });
    };
  });
}
