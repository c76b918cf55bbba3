import type { EventEmitter } from "node:events";
import { type RawBuilder, sql } from "kysely";

/** What is used of a `pg` client. */
export interface Client extends EventEmitter {
  release(destroy: boolean): void;
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
}

/** What is used here of a `pg` pool. */
export interface ConnectionPool extends EventEmitter {
  readonly totalCount: number;
  readonly idleCount: number;
  /** Callers that wait for a connection. */
  readonly waitingCount: number;
}

/** A caller that can release a dead connection does so at once; after this time none will. */
const GRACE_MS = 1_000;

/**
 * Releases a connection that dies in the middle of a transaction. Kysely's rollback fails on such a connection before
 * Kysely releases it, so every transaction that a restart of Postgres cuts off would keep its slot of the pool, until no
 * slot is left and the process answers no request.
 */
export function reclaimDeadConnections(pool: EventEmitter): void {
  const inUse = new WeakSet<Client>();
  pool.on("acquire", (client: Client) => inUse.add(client));
  pool.on("release", (_error: unknown, client: Client) => inUse.delete(client));
  pool.on("connect", (client: Client) => {
    client.once("end", () => {
      setTimeout(() => {
        if (inUse.has(client)) client.release(true);
      }, GRACE_MS);
    });
  });
}

/** No transaction of this project is idle for as long as this, in seconds. */
const IDLE_SECONDS = 60;

/**
 * For a new connection: makes Postgres end a transaction that is idle for too long. A process that froze, or that the
 * network cut off, would hold its locks for hours, and other processes would wait for the rows.
 */
export const endIdleTransactions = async (client: Pick<Client, "query">): Promise<void> => {
  await client.query(`set idle_in_transaction_session_timeout = '${IDLE_SECONDS}s'`);
};

const PREPARED = /^\/\* prepared: (\w+) \*\/|\/\* prepared: (\w+) \*\/$/;

/**
 * Begins, or ends, a statement that each connection parses once and plans a few times, not at every call: for the few that run
 * hundreds of times a second. The same name must always stand for the same text.
 */
export const prepared = (name: string): RawBuilder<unknown> => sql.raw(`/* prepared: ${name} */`);

/** Kysely hands a statement on by its text alone; `pg` prepares those that have a name. */
export function prepareMarked(pool: EventEmitter): void {
  pool.on("connect", (client: Client) => {
    const query = client.query.bind(client);
    client.query = (text, values, ...rest) => {
      const [, begun, ended] = (typeof text === "string" && PREPARED.exec(text)) || [];
      const name = begun ?? ended;
      return name === undefined ? query(text, values, ...rest) : query({ name, text, values });
    };
  });
}
