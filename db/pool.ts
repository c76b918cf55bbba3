import type { EventEmitter } from "node:events";

/** The part of a `pg` client that is used here. */
export interface Client extends EventEmitter {
  release(destroy: boolean): void;
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
}

/** The part of a `pg` pool that is used here. */
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
