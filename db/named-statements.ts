import type { EventEmitter } from "node:events";
import type { Client } from "./pool.ts";

/** Names of statements that are on their way to the driver, by their list of values: Kysely passes on nothing else. */
const names = new WeakMap<object, string>();

/** Names the statement that is about to be run with this list of values. */
export function nameStatement(values: object, name: string): void {
  names.set(values, name);
}

/** Lets the connections of a pool prepare the statements that `nameStatement` names: `pg` prepares named ones. */
export function prepareNamed(pool: EventEmitter): void {
  pool.on("connect", (client: Pick<Client, "query">) => {
    const query = client.query.bind(client);
    client.query = (text, values, ...rest) => {
      const name = Array.isArray(values) ? names.get(values) : undefined;
      return name === undefined ? query(text, values, ...rest) : query({ name, text, values });
    };
  });
}
