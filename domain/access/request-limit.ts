import { hash } from "node:crypto";
import { type RawBuilder, sql } from "kysely";
import type { Env } from "../../config/env.ts";
import type { EntityManager } from "../../db/orm.ts";
import { withSharedClaim } from "../../db/pool.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";
import { Batches } from "../../lib/batches.ts";
import { ApiError } from "../errors.ts";

/*
 * Requests are counted in windows of a minute of the database's clock: all processes of the API count in the same row, so
 * that a limit is exact over all of them. A request beyond the limit leaves no version of the row behind.
 */

export const WINDOW_SECONDS = 60;
const WINDOW_MS = WINDOW_SECONDS * 1_000;
/** Callers and addresses that a process remembers at most, so that many addresses do not fill its memory. */
const MAX_REMEMBERED = 10_000;
/** How long a credential that worked passes an address that is blocked for the failures of its neighbours. */
const WORKED_MS = 5 * 60_000;

/** SQL: the length of a window, the start of the one that is open, and the milliseconds until it ends, 1 at least. */
const WINDOW = sql`interval ${sql.lit(`${WINDOW_SECONDS} seconds`)}`;
const WINDOW_START = sql`date_bin(${WINDOW}, statement_timestamp(), 'epoch')`;
const RESET_MS = sql`ceil(extract(epoch from ${WINDOW_START} + ${WINDOW} - statement_timestamp()) * 1000)::int`;

/** SQL that adds to a caller's count in the window that is open, and returns it; no row when it has reached the limit. */
export const counting = (
  caller: RawBuilder<unknown>,
  { requests, limit, from = sql`` }: Record<"requests" | "limit", RawBuilder<unknown>> & { from?: RawBuilder<unknown> },
  /** Of another window, at most two hours ago. */
  start = WINDOW_START,
) => sql`
  insert into request_counts as counts (starts_at, caller_id, count) select ${start}, ${caller}, ${requests} ${from}
  on conflict (starts_at, caller_id) do update set count = counts.count + ${requests} where counts.count < ${limit}
  returning count`;

/** A caller's requests in the window that is open. */
interface WindowCount {
  /** With this request; null when the limit was reached before it. */
  count: number | null;
  resetMs: number;
}

const countRequest = defineStatement((_em, { callerId, limit }: { callerId: string; limit: number }) => {
  const counted = counting(sql`${callerId}::text`, { requests: sql`1`, limit: sql`${limit}::int` });
  return sql<WindowCount>`with counted as (${counted}) select (select count from counted) as count, ${RESET_MS} as "resetMs"`;
});

/** The rest of a limit in the window that is open. */
export interface Allowance {
  limit: number;
  /** Requests that are left after this one. */
  remaining: number;
  resetMs: number;
}

/** A look-up must select this column: the team's own limit. */
interface LimitedRow {
  /** Requests that the plan allows each caller in a minute; null where it leaves that to the deployment. */
  requests_per_minute: number | null;
}

interface LookupSpec<Values, Row> {
  /** A query of Kysely for one row at most. */
  query: (em: EntityManager, values: Values) => { executeTakeFirst(): Promise<Row | undefined> };
  /** SQL on the row: the id that the caller's requests are counted by. */
  callerId: (values: Values) => RawBuilder<unknown>;
  /** SQL on the row: whether the credential is good. Any other request is not counted. */
  isGood: (values: Values) => RawBuilder<unknown>;
}

/** Values of the statement that looks up and counts, besides those of the look-up. */
interface CountValues {
  /** The client's address as a caller. */
  address: string;
  maxFailures: number;
  maxRequests: number;
  requests: number;
}

/** The row of a caller as the statement that counts gives it. */
type CountedRow<Row> = Row & WindowCount & { failures: number };

/** A look-up that was declared, with the count of requests. */
export type Lookup<Values, Row> = (
  em: EntityManager,
  values: Values & CountValues,
) => Promise<CountedRow<Row> | undefined>;

/** Declares a look-up of callers, which counts their requests in the same statement. */
export function defineLookup<Values extends NamedValues, Row extends LimitedRow>({
  query,
  callerId,
  isGood,
}: LookupSpec<Values, Row>): Lookup<Values, Row> {
  const counted = defineStatement((em, values: Values & CountValues) => {
    const { address, maxFailures, maxRequests, requests } = values;
    const adding = counting(callerId(values), {
      requests: sql`${requests}::int`,
      limit: sql`(select least(${maxRequests}::int, requests_per_minute) from found)`,
      from: sql`from found where ${isGood(values)} and failures < ${maxFailures}::int`,
    });
    // As one value: to decode its many columns would take the process longer.
    return sql<{ found: CountedRow<Row> }>`
      with found as materialized (
        select record.*, coalesce(
          (select count from request_counts where starts_at = ${WINDOW_START} and caller_id = ${address}), 0) as failures
        from (${query(em, values)}) as record
      ), counted as (${adding})
      select row_to_json(looked_up) as found from (
        select found.*, (select count from counted) as count, ${RESET_MS} as "resetMs" from found) as looked_up`;
  });
  return async (em, values) => (await counted(em, values)).rows[0]?.found;
}

/** A request of a caller whose credential is good. */
export interface CountedRequest {
  allowance: Allowance;
  /** Where the limit was reached before. */
  refused: ApiError | undefined;
}

type FoundCaller<Row> = CountedRequest & { row: Row };

/** The name under which the failures of an address or a network are counted; empty, which counts none, for null. */
const callerIdOfAddress = (clientAddress: string | null): string =>
  clientAddress === null ? "" : `address/${clientAddress}`;

/** A map that forgets the entries that were set longest ago beyond a number of them. */
class Remembered<Value> extends Map<string, Value> {
  override set(key: string, value: Value): this {
    this.delete(key);
    const [oldest] = this.size >= MAX_REMEMBERED ? this.keys() : [];
    if (oldest !== undefined) this.delete(oldest);
    return super.set(key, value);
  }
}

const limitText = (limit: number): string => `The limit is ${limit} requests per ${WINDOW_SECONDS} seconds.`;

const refusal = (message: string, resetMs: number): ApiError =>
  new ApiError("rate_limit_exceeded", message, { retryAfterSeconds: Math.ceil(resetMs / 1_000) });

type Settings = Pick<Env, "RATE_LIMIT_PER_MINUTE" | "FAILED_AUTHENTICATIONS_PER_MINUTE">;

/** The limits on the requests of callers and on the failed authentications of addresses, as one process knows them. */
export class RequestLimits {
  /** Failed authentications of an address in a window. */
  readonly #maxFailures: number;
  readonly #maxRequests: number;
  /** Addresses that have used up their failures, with the end of the window by `performance.now()`. */
  readonly #blocked = new Remembered<number>();
  /** Digests of credentials, with the time by `performance.now()` at which each worked last. */
  readonly #worked = new Remembered<number>();
  /** By address and credential. */
  readonly #lookUps = new Batches<undefined, unknown>();

  constructor(settings: Settings) {
    this.#maxRequests = settings.RATE_LIMIT_PER_MINUTE;
    this.#maxFailures = settings.FAILED_AUTHENTICATIONS_PER_MINUTE;
  }

  /**
   * Looks a caller up and counts its request. Requests with one credential from one client share the next statement while
   * one runs: its row of counts admits one statement at a time anyway.
   * @returns undefined where there is no such caller
   * @throws {ApiError} `rate_limit_exceeded` when another process has counted the last failures of the address
   */
  async findAndCount<Values extends NamedValues, Row extends LimitedRow>(
    em: EntityManager,
    { clientAddress, credential }: { clientAddress: string | null; credential: string },
    lookup: Lookup<Values, Row>,
    values: Values,
  ): Promise<FoundCaller<Row> | undefined> {
    const name = `${clientAddress} ${credential}`;
    const limits = { maxFailures: this.#maxFailures, maxRequests: this.#maxRequests };
    const look = (requests: number) =>
      lookup(em, { ...values, ...limits, address: callerIdOfAddress(clientAddress), requests });
    const { result, size, place } = await this.#lookUps.join(name, undefined, (requests) =>
      withSharedClaim(() => look(requests.length)),
    );
    // Requests of one name have one look-up.
    const row = result as CountedRow<Row> | undefined;
    if (row === undefined) return undefined;
    const { failures, resetMs } = row;
    if (clientAddress !== null && failures >= this.#maxFailures) throw this.#block(clientAddress, resetMs);
    // The smaller one of the service's limit and the team's.
    const limit = Math.min(this.#maxRequests, row.requests_per_minute ?? this.#maxRequests);
    const count = row.count === null ? Infinity : row.count - size + place + 1;
    const refused = count > limit ? refusal(limitText(limit), resetMs) : undefined;
    return { row, allowance: { limit, remaining: Math.max(0, limit - count), resetMs }, refused };
  }

  /**
   * Counts a request that is not one of an API's caller.
   * @throws {ApiError} `rate_limit_exceeded` with this message, beyond the limit of a window
   */
  async limitRequests(em: EntityManager, callerId: string, limit: number, message = limitText(limit)): Promise<void> {
    const { count, resetMs } = await this.#count(em, callerId, limit);
    if (count === null) throw refusal(message, resetMs);
  }

  /** Counts one request or failure. */
  async #count(em: EntityManager, callerId: string, limit: number): Promise<WindowCount> {
    const { rows } = await countRequest(em, { callerId, limit });
    return rows[0] ?? { count: null, resetMs: WINDOW_MS };
  }

  /**
   * Runs the authentication of a caller, unless its address is blocked, and counts it when it fails. When many
   * attempts fail at once, exactly the limit's number get the reason; the others get `rate_limit_exceeded`.
   * @param clientAddress an address or a network; null where it is not known, and nothing is limited
   * @param identify gets the address whose failures limit this request; null for a credential that worked lately
   * @param credential one that worked lately passes a blocked address. One that could not be verified, a 503, is not counted:
   *   it may be honest, and costs no statement
   * @throws {ApiError} `rate_limit_exceeded`, and the refusals of `identify`
   */
  async limitFailures<T>(
    em: EntityManager,
    clientAddress: string | null,
    identify: (clientAddress: string | null) => Promise<T>,
    credential?: string,
  ): Promise<T> {
    if (clientAddress === null) return identify(null);
    const digest = credential === undefined ? "" : hash("sha256", credential);
    const hasWorked = performance.now() - (this.#worked.get(digest) ?? Number.NEGATIVE_INFINITY) < WORKED_MS;
    const restMs = () => (this.#blocked.get(clientAddress) ?? 0) - performance.now();
    if (restMs() > 0 && !hasWorked) throw this.#refusal(restMs());
    try {
      const identified = await identify(hasWorked ? null : clientAddress);
      if (credential !== undefined) this.#worked.set(digest, performance.now());
      return identified;
    } catch (error) {
      if (!(error instanceof ApiError && error.status === 401)) throw error;
      this.#worked.delete(digest);
      if (restMs() > 0) throw this.#refusal(restMs());
      const { count, resetMs } = await this.#count(em, callerIdOfAddress(clientAddress), this.#maxFailures);
      if (count === null) throw this.#block(clientAddress, resetMs);
      if (count >= this.#maxFailures) this.#block(clientAddress, resetMs);
      throw error;
    }
  }

  /** Refuses the address's requests until the window ends, without a query. @returns the refusal of this one */
  #block(clientAddress: string, resetMs: number): ApiError {
    this.#blocked.set(clientAddress, performance.now() + resetMs);
    return this.#refusal(resetMs);
  }

  #refusal(resetMs: number): ApiError {
    return refusal(
      `An address may fail to authenticate ${this.#maxFailures} times in ${WINDOW_SECONDS} seconds.`,
      resetMs,
    );
  }
}
