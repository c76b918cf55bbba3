import { AsyncLocalStorage } from "node:async_hooks";
import type { EventEmitter } from "node:events";
import type { Socket } from "node:net";
import { type Claim, FairQueue } from "../lib/fair-queue.ts";
import { isReadOnly } from "./unreachable.ts";

export interface Client extends EventEmitter {
  readonly connection: { readonly stream: Socket };
  readonly readyForQuery: boolean;
  release(destroy: boolean): void;
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
}

export interface ConnectionPool extends EventEmitter {
  connect(): Promise<Client>;
  readonly ending: boolean;
  readonly totalCount: number;
  readonly idleCount: number;
  readonly waitingCount: number;
}

/** For whom the statements of a call are. */
interface CallClaim {
  key: string;
  /** A call that has begun to work ends its work, also when its caller has gone. */
  hasBegun: boolean;
  readonly hasEnded: () => boolean;
}

const claims = new AsyncLocalStorage<CallClaim>();
const OF_NOBODY: Claim = { key: "" };

/**
 * Runs a call whose statements are for `key` until `claimFor` names another.
 * @param hasEnded whether the caller has gone, or has its answer: then the call is refused its first connection
 */
export function withClaim<T>(key: string, hasEnded: () => boolean, run: () => T): T {
  const claim: CallClaim = { key, hasBegun: false, hasEnded: () => !claim.hasBegun && hasEnded() };
  return claims.run(claim, run);
}

/**
 * From here on the statements of this call are for `key`.
 * @param isKept it is done also when its caller has gone; else that is asked again before its next connection
 */
export function claimFor(key: string, { isKept = false } = {}): void {
  const claim = claims.getStore();
  if (claim) Object.assign(claim, { key, hasBegun: isKept });
}

/** The key of what others ask for in a team's name, its recipients and its providers: the team's own calls do not wait for them. */
export const byOthers = (teamId: string): string => `others/${teamId}`;

/** Runs the work of several calls for the key of this one: it is done also when this one's caller has gone. */
export const withSharedClaim = <T>(run: () => T): T => withClaim(claims.getStore()?.key ?? "", () => false, run);

/** For statements of a request that may take as long as its answer, and for its wait for a connection. */
export const PATIENT_MS = 30_000;

/**
 * Gives connections to those who wait for one in turn, by whom their statements are for: a quarter of them at most to each
 * key, also while none other waits, because a statement that has begun cannot be taken back.
 */
export function shareConnections(pool: ConnectionPool, size: number): void {
  const queue = new FairQueue({ places: size, most: Math.ceil(size / 4), mostWaitMs: PATIENT_MS });
  const leaves = new WeakMap<Client, () => void>();
  const connect = pool.connect.bind(pool);
  pool.connect = async () => {
    const claim = claims.getStore();
    const leave = await queue.take(claim ?? OF_NOBODY);
    if (claim) claim.hasBegun = true;
    try {
      const client = await connect();
      leaves.set(client, leave);
      return client;
    } catch (error) {
      leave();
      throw error;
    }
  };
  pool.on("release", (_error: unknown, client: Client) => {
    leaves.get(client)?.();
    leaves.delete(client);
  });
  // None waits in the pool itself.
  Object.defineProperty(pool, "waitingCount", { get: () => queue.waiting });
}

/** A caller that can release a dead connection does so at once; after this time none will. */
const GRACE_MS = 1_000;

/**
 * Releases connections that their callers have lost, which would keep their slots of the pool for ever: one that dies
 * in the middle of a transaction (Kysely's rollback fails on it before Kysely releases it), and one that is ready only
 * when the pool is being closed.
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
    client.once("end", () => {
      const timer = setTimeout(reclaim, GRACE_MS, client);
      // A process that has closed its connections does not wait for it.
      if (!inUse.has(client)) timer.unref();
    });
  });
}

/** The kernel asks after 10 s of silence whether the server is still there, and gives up after another 10 s. */
export const KEEP_ALIVE = { keepAlive: true, keepAliveInitialDelayMillis: 10_000 } as const;

/** The same for the server: a process that the network has cut off holds no lock for more than half a minute. */
const SERVER_KEEP_ALIVE = {
  tcp_keepalives_idle: "10s",
  tcp_keepalives_interval: "5s",
  tcp_keepalives_count: "3",
  tcp_user_timeout: "30s",
  client_connection_check_interval: "10s",
} as const;

/** Less than a statement of a worker may take: those that wait for the locks of a frozen process go through. */
const IDLE_SECONDS = 30;
/** Its relay locks endpoints of many teams, whose events wait when it freezes. */
const WEBHOOKS_IDLE_SECONDS = 5;

/**
 * 0 is no limit. Postgres ends a longer statement, also where the process that asked has frozen. Work that needs more
 * says so by `limitStatements`.
 */
export const STATEMENT_SECONDS = {
  request: 5,
  /** A confirm copies a plan of millions of recipients. */
  sends: 300,
  dispatch: 60,
  webhooks: 60,
  intake: 60,
  maintenance: 300,
  command: 3_600,
  migration: 0,
} as const;

/** How long a statement of a request waits for a lock that another transaction holds. */
const REQUEST_LOCK_SECONDS = 1;

/** Where no answer comes so long after Postgres should have ended the statement, the network or the server is gone. */
const ANSWER_MARGIN_MS = 10_000;

/** Undefined is for ever. */
export const answerLimitMs = (work: WorkKind): number | undefined =>
  STATEMENT_SECONDS[work] === 0 ? undefined : STATEMENT_SECONDS[work] * 1_000 + ANSWER_MARGIN_MS;

/**
 * Closes a connection without a byte for this long while a statement waits: `pg`'s `query_timeout` would leave it open.
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

const setSilenceLimit = ({ connection }: Client, ms: number | undefined): void =>
  void connection.stream.setTimeout(ms ?? 0);

class NoAnswerError extends Error {
  readonly code = "ETIMEDOUT";

  constructor() {
    super("Postgres gave no answer in time, and the connection was closed");
  }
}

const prepared = new Map<string, string>();
/** The pages of lists differ by their filters, and each statement takes memory of Postgres. */
const MAX_PREPARED = 1_000;

export function prepare(text: string): void {
  if (!prepared.has(text) && prepared.size < MAX_PREPARED) prepared.set(text, `prepared_${prepared.size}`);
}

/** Sets the time for each further statement of a transaction, and for its wait for locks: its value is `5000ms`. */
export const LIMIT_STATEMENTS =
  "select set_config('statement_timeout', $1, true), set_config('lock_timeout', $1, true)";

export type AroundStatement = <T>(text: string, run: () => Promise<T>) => Promise<T>;

/** Lets connections heed `prepare` and `LIMIT_STATEMENTS` by the text of a statement: Kysely passes on nothing else. */
export function heedStatements(
  pool: EventEmitter,
  answerMs: number | undefined,
  around: AroundStatement = (_text, run) => run(),
): void {
  pool.on("release", (_error: unknown, client: Client) => setSilenceLimit(client, answerMs));
  pool.on("connect", (client: Client) => {
    const query = client.query.bind(client);
    client.query = (text, values, ...rest) => {
      if (typeof text !== "string" || !Array.isArray(values) || rest.length > 0) return query(text, values, ...rest);
      if (text === LIMIT_STATEMENTS) setSilenceLimit(client, Number.parseInt(values[0], 10) + ANSWER_MARGIN_MS);
      const name = prepared.get(text);
      // Without a callback, V8 would keep the objects of every statement until the next full collection.
      const run = () =>
        new Promise((resolve, reject) => {
          const settle = (error: unknown, result: unknown) => {
            const { release } = client;
            // Its server takes no writes any more: the pool closes it.
            if (isReadOnly(error)) client.release = () => release(true);
            if (error) reject(error);
            else resolve(result);
          };
          query({ text, values, ...(name !== undefined && { name }) }, settle);
        });
      return around(text, run);
    };
  });
}

export type WorkKind = keyof typeof STATEMENT_SECONDS;

/** After a failover a name may still lead to the server that was the primary. */
const REFUSE_READ_ONLY = `do $$ begin if current_setting('transaction_read_only') = 'on' then
  raise 'Postgres takes no writes' using errcode = 'read_only_sql_transaction'; end if; end $$`;

/** A frozen process would hold its locks for hours. Without JIT: compiling takes longer than it saves. */
export const limitSession =
  (work: WorkKind) =>
  async (client: Pick<Client, "query">): Promise<void> => {
    const settings = {
      idle_in_transaction_session_timeout: `${work === "webhooks" ? WEBHOOKS_IDLE_SECONDS : IDLE_SECONDS}s`,
      statement_timeout: `${STATEMENT_SECONDS[work]}s`,
      ...(work === "request" && { lock_timeout: `${REQUEST_LOCK_SECONDS}s` }),
      jit: "off",
      ...SERVER_KEEP_ALIVE,
    };
    const statements = Object.entries(settings).map(([name, value]) => `set ${name} = '${value}'`);
    // An operator may ask a standby.
    await client.query((work === "command" ? statements : [...statements, REFUSE_READ_ONLY]).join("; "));
  };
