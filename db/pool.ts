import type { EventEmitter } from "node:events";
import type { Socket } from "node:net";

/** The part of a `pg` client that is used here. */
export interface Client extends EventEmitter {
  readonly connection: { readonly stream: Socket };
  /** Postgres has answered all that was sent to it. */
  readonly readyForQuery: boolean;
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

/**
 * Options of a connection: while it is idle, the kernel asks after 10 s whether the server is still there, and closes it
 * when no answer comes for another 10 s. The system's own default is two hours.
 */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 } as const;

/**
 * The same on the server's side, for Postgres: a process that the network has cut off holds no lock for longer than about
 * half a minute. It is noticed while its connection is idle (`tcp_keepalives_*`), while an answer is on its way
 * (`tcp_user_timeout`), and while a statement runs (`client_connection_check_interval`).
 */
const SERVER_KEEP_ALIVE = {
  tcp_keepalives_idle: "10s",
  tcp_keepalives_interval: "5s",
  tcp_keepalives_count: "3",
  tcp_user_timeout: "30s",
  client_connection_check_interval: "10s",
} as const;

/**
 * No transaction of this project is idle for as long as this, in seconds. Less than a statement of a worker may take: those that
 * wait for the locks of a frozen process go through before their own time is up.
 */
const IDLE_SECONDS = 30;
/** The same for a webhooks worker: its relay locks endpoints of many teams, whose events wait when it freezes. */
const WEBHOOKS_IDLE_SECONDS = 5;

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

/**
 * How much longer a process waits for an answer than Postgres may take for it. Postgres ends a statement that takes too
 * long; where nothing comes even then, the network or the server is gone, and the connection is closed.
 */
const ANSWER_MARGIN_MS = 10_000;

/** How long a process waits for the answer to a statement, in ms; undefined is for ever. */
export const answerLimitMs = (work: WorkKind): number | undefined =>
  STATEMENT_SECONDS[work] === 0 ? undefined : STATEMENT_SECONDS[work] * 1_000 + ANSWER_MARGIN_MS;

/**
 * Closes a new connection when no byte has passed either way for this long, in ms, while a statement waits for its answer: what
 * was sent then fails as if Postgres could not be reached. `setSilenceLimit` changes the time.
 *
 * `pg` has an option for this, `query_timeout`. It makes a timer for each statement and exchanges the statement's callback,
 * after which V8 keeps the objects of every statement until the next full collection.
 */
export function limitSilence(client: Client, ms: number | undefined): void {
  const { stream } = client.connection;
  stream.on("timeout", () => {
    const { bytesRead } = stream;
    // A process that was suspended runs its timers before it reads what has arrived meanwhile.
    setImmediate(() => {
      if (client.readyForQuery === false && stream.bytesRead === bytesRead) stream.destroy(new NoAnswerError());
    });
  });
  setSilenceLimit(client, ms);
}

/** Lets the connection be silent for this long from now on, in ms, while a statement waits; undefined is for ever. */
const setSilenceLimit = ({ connection }: Client, ms: number | undefined): void =>
  void connection.stream.setTimeout(ms ?? 0);

/** Postgres gave no answer in the time that it has for one. */
class NoAnswerError extends Error {
  readonly code = "ETIMEDOUT";

  constructor() {
    super("Postgres gave no answer in time, and the connection was closed");
  }
}

/** Names of the statements that connections prepare, by their texts. */
const prepared = new Map<string, string>();
/** Further statements are not prepared: the pages of lists differ by their filters, and each takes memory of Postgres. */
const MAX_PREPARED = 1_000;

/** Has each connection prepare the statement with this text when it runs it for the first time. */
export function prepare(text: string): void {
  if (!prepared.has(text) && prepared.size < MAX_PREPARED) prepared.set(text, `prepared_${prepared.size}`);
}

/** Sets the time for each further statement of a transaction: its value is `5000ms`. */
export const LIMIT_STATEMENTS = "select set_config('statement_timeout', $1, true)";

/**
 * Lets the connections of a pool heed `prepare` and `LIMIT_STATEMENTS`, by the text of a statement: Kysely passes on
 * nothing else.
 * @param answerMs how long answers are waited for outside of transactions with a time of their own; undefined is for ever
 */
export function heedStatements(pool: EventEmitter, answerMs: number | undefined): void {
  pool.on("release", (_error: unknown, client: Client) => setSilenceLimit(client, answerMs));
  pool.on("connect", (client: Client) => {
    const query = client.query.bind(client);
    client.query = (text, values, ...rest) => {
      if (typeof text !== "string" || !Array.isArray(values) || rest.length > 0) return query(text, values, ...rest);
      if (text === LIMIT_STATEMENTS) setSilenceLimit(client, Number.parseInt(values[0], 10) + ANSWER_MARGIN_MS);
      const name = prepared.get(text);
      // Without a callback `pg` makes a promise and sets its callback later, after which V8 keeps the objects of every
      // statement until the next full collection.
      return new Promise((resolve, reject) => {
        const settle = (error: unknown, result: unknown) => (error ? reject(error) : resolve(result));
        query({ text, values, ...(name !== undefined && { name }) }, settle);
      });
    };
  });
}

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
    const settings = {
      idle_in_transaction_session_timeout: `${work === "webhooks" ? WEBHOOKS_IDLE_SECONDS : IDLE_SECONDS}s`,
      statement_timeout: `${STATEMENT_SECONDS[work]}s`,
      jit: "off",
      ...SERVER_KEEP_ALIVE,
    };
    const statements = Object.entries(settings).map(([name, value]) => `set ${name} = '${value}'`);
    await client.query(statements.join("; "));
  };
