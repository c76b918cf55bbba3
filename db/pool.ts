import type { EventEmitter } from "node:events";

/** The part of a `pg` client that is used here. */
export interface Client extends EventEmitter {
  release(destroy: boolean): void;
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
}

/** The part of a `pg` pool that is used here. */
export interface ConnectionPool extends EventEmitter {
  /** It is being closed, and gives no connection to a new caller. */
  readonly ending: boolean;
  readonly totalCount: number;
  readonly idleCount: number;
  /** Callers that wait for a connection. */
  readonly waitingCount: number;
}

/** A caller that can release a dead connection does so at once; after this time none will. */
const GRACE_MS = 1_000;

/**
 * Releases connections that their callers have lost.
 *
 * One that dies in the middle of a transaction: Kysely's rollback fails on such a connection before Kysely releases it, so
 * every transaction that a restart of Postgres cuts off would keep its slot of the pool, until no slot is left and the
 * process answers no request.
 *
 * One that is ready only when the pool is being closed: Kysely has forgotten its pool by then, and fails with the
 * connection in its hand. The pool would wait for it for ever, and with it the process that stops.
 */
export function reclaimLostConnections(pool: ConnectionPool): void {
  const inUse = new WeakSet<Client>();
  const reclaim = (client: Client) => {
    if (inUse.has(client)) client.release(true);
  };
  pool.on("acquire", (client: Client) => inUse.add(client));
  pool.on("release", (_error: unknown, client: Client) => inUse.delete(client));
  pool.on("connect", (client: Client) => {
    setImmediate(() => pool.ending && reclaim(client));
    client.once("end", () => setTimeout(reclaim, GRACE_MS, client));
  });
}

/** No transaction of this project is idle for as long as this, in seconds. */
const IDLE_SECONDS = 60;

/**
 * How long one statement may take, in seconds, by the kind of work that runs it; 0 is no limit. Postgres ends a longer
 * one: its rows and its connection are free again, even where the process that asked has given up or frozen.
 */
export const STATEMENT_SECONDS = {
  /** As long as a request waits for its answer. */
  request: 30,
  /** A confirm copies a plan of millions of recipients; its activity has as long. */
  sends: 300,
  dispatch: 60,
  /** As long as an activity that attempts deliveries. */
  webhooks: 60,
  /** As long as the sender of a report waits. */
  intake: 60,
  /** Reads sums over whole tables. */
  maintenance: 300,
  /** An operator watches it. */
  command: 3_600,
  /** An index on a large table takes as long as it takes. */
  migration: 0,
} as const;

/** A kind of work with its own time for a statement. The kinds of workers have the names of their pools. */
export type WorkKind = keyof typeof STATEMENT_SECONDS;

/**
 * For a new connection: makes Postgres end a statement that takes too long, and a transaction that is idle for too long.
 * A process that froze, or that the network cut off, would hold its locks for hours, and other processes would wait for
 * the rows. Postgres compiles no expressions (JIT): the statements that are costly enough for it run once, over a whole
 * audience, and their compilation takes longer than it saves.
 */
export const limitSession =
  (work: WorkKind) =>
  async (client: Pick<Client, "query">): Promise<void> => {
    await client.query(
      `set idle_in_transaction_session_timeout = '${IDLE_SECONDS}s'; set statement_timeout = '${STATEMENT_SECONDS[work]}s'; set jit = off`,
    );
  };
