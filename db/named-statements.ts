import type { EventEmitter } from "node:events";
import type { Connection, QueryConfig, QueryResult } from "pg";
import { copyQuery } from "./copy-query.ts";
import { ANSWER_MARGIN_MS, type Client, setSilenceLimit } from "./pool.ts";
import { type Callback, SubmittedQuery } from "./submitted-query.ts";

/** Names of statements that are on their way to the driver, by their list of values: Kysely passes on nothing else. */
const names = new WeakMap<object, string>();

/** Names the statement that is about to be run with this list of values. */
export function nameStatement(values: object, name: string): void {
  names.set(values, name);
}

/** Times for the statements of transactions, in ms, by the list of values of the statement that sets them in Postgres. */
const allowances = new WeakMap<object, number>();

/** Waits for the answers to a transaction's statements as long as the statement with this list of values lets Postgres take. */
export function allowTransaction(values: object, ms: number): void {
  allowances.set(values, ms);
}

/**
 * A statement with the begin of its transaction before it, sent as one: Postgres runs the statement only if the transaction
 * has begun. The connection has prepared the begin.
 */
class FirstQuery extends SubmittedQuery {
  readonly #begin: string;
  #hasBegun = false;

  constructor(begin: string, config: QueryConfig, callback: Callback) {
    super(config, undefined, callback);
    this.#begin = begin;
  }

  override submit(connection: Connection): Error | null {
    connection.stream.cork();
    try {
      connection.bind({ statement: this.#begin, values: [] }, true);
      connection.execute({}, true);
      return super.submit(connection);
    } finally {
      connection.stream.uncork();
    }
  }

  override handleCommandComplete(message: { text: string }, connection: Connection): void {
    if (this.#hasBegun) super.handleCommandComplete(message, connection);
    this.#hasBegun = true;
  }
}

const BEGIN = /^(begin|start transaction)\b/;
const END = /^(commit|rollback)$/;
/** The result of a statement that was not sent, or not yet. */
const NOTHING = { command: "", rowCount: null, oid: 0, fields: [], rows: [] } satisfies QueryResult;

/**
 * The `query` of a connection, which gives `pg` a callback where its caller gives none. Without one, `pg` makes a promise
 * and sets its callback later, after which V8 keeps the objects of every statement until the next full collection.
 */
function queryWithCallback(client: Client): Client["query"] {
  const query = client.query.bind(client);
  return (config, values, ...rest) => {
    // A `callback` in the options is none of the caller's: `pg` puts it there, also when they are sent once more.
    const isSubmittable = typeof config === "object" && config !== null && "submit" in config;
    if (isSubmittable || typeof values === "function" || rest.length > 0) return query(config, values, ...rest);
    return new Promise((resolve, reject) => {
      query(config, values, (error: unknown, result: unknown) => (error ? reject(error) : resolve(result)));
    });
  };
}

/**
 * Lets the connections of a pool prepare the statements that `nameStatement` names: `pg` prepares named ones. Waits for the
 * answers to a transaction as long as `allowTransaction` says. And begins a transaction with its first statement, which
 * saves a round trip: Postgres does nothing in between.
 * @param answerMs how long other answers are waited for; undefined is for ever
 */
export function prepareNamed(pool: EventEmitter, answerMs: number | undefined): void {
  /** The begins that wait for a first statement. */
  const begins = new WeakMap<object, string>();
  pool.on("release", (_error: unknown, client: Client) => begins.delete(client));
  pool.on("connect", (client: Client) => {
    const query = queryWithCallback(client);
    const prepared = new Set<string>();
    /** The present transaction has a time of its own for each of its statements. */
    let hasOwnTime = false;
    client.query = (text, values, ...rest) => {
      if (typeof text !== "string") return query(text, values, ...rest);
      if (BEGIN.test(text)) {
        if (!prepared.has(text)) return Promise.resolve(query({ name: text, text })).then(() => prepared.add(text));
        begins.set(client, text);
        return Promise.resolve(NOTHING);
      }
      const copy = Array.isArray(values) ? copyQuery(text, values) : undefined;
      if (copy) {
        if (begins.has(client)) throw new Error("a copy cannot be the first statement of its transaction");
        query(copy.query);
        return copy.result;
      }
      const begin = begins.get(client);
      begins.delete(client);
      if (begin !== undefined && END.test(text)) return Promise.resolve(NOTHING);

      if (hasOwnTime && END.test(text))
        return Promise.resolve(query(text, values, ...rest)).finally(() => {
          setSilenceLimit(client, answerMs);
          hasOwnTime = false;
        });
      const allowedMs = Array.isArray(values) ? allowances.get(values) : undefined;
      if (allowedMs !== undefined) {
        setSilenceLimit(client, allowedMs + ANSWER_MARGIN_MS);
        hasOwnTime = true;
      }
      const name = Array.isArray(values) ? names.get(values) : undefined;
      const hasValues = Array.isArray(values) && values.length > 0;
      if (begin === undefined) return name === undefined ? query(text, values, ...rest) : query({ name, text, values });
      // Without values it may be several statements, which can only be sent by themselves.
      if (!hasValues)
        return Promise.resolve(query({ name: begin, text: begin })).then(() => query(text, values, ...rest));
      return new Promise((resolve, reject) => {
        const config = { text, values, ...(name !== undefined && { name }) };
        query(new FirstQuery(begin, config, (error, result) => (error ? reject(error) : resolve(result))));
      });
    };
  });
}
