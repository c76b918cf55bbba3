import { hash } from "node:crypto";
import type { Env } from "../../config/env.ts";
import type { EntityManager } from "../../db/orm.ts";
import { executePrepared, textStatement } from "../../db/statements.ts";
import { isCancelled, isUnreachable } from "../../db/unreachable.ts";
import { ApiError } from "../errors.ts";
import { Batches } from "./batches.ts";

/*
 * Requests are counted in windows of a minute, which begin at whole minutes of the database's clock: all processes of the
 * API count in the same row, so that a limit is exact over all of them. A request beyond the limit is not counted, and
 * leaves no version of the row behind.
 */

/** Length of a window. */
export const WINDOW_SECONDS = 60;
const WINDOW_MS = WINDOW_SECONDS * 1_000;
/** Callers and addresses that a process remembers at most, so that many addresses do not fill its memory. */
const MAX_REMEMBERED = 10_000;
/** How long a credential that worked passes an address that is blocked for the failures of its neighbours. */
const WORKED_MS = 5 * 60_000;

/** SQL: the start of the window that is open. */
const WINDOW_START = `date_bin('${WINDOW_SECONDS} seconds', statement_timestamp(), 'epoch')`;
/** SQL: milliseconds until it ends, 1 at least. */
const RESET_MS = `ceil(extract(epoch from
  ${WINDOW_START} + interval '${WINDOW_SECONDS} seconds' - statement_timestamp()) * 1000)::int`;

/** A statement that counts requests; each value is SQL. */
interface Counting {
  caller: string;
  limit: string;
  /** How many to add: one unless given. */
  requests?: string;
  /** Whose rows are callers; without it `caller` is a value. */
  from?: string;
}

/**
 * SQL that adds to a caller's count in the window that is open, and returns it; it returns no row when the count has
 * reached the limit.
 */
const countingSql = ({ caller, limit, requests = "1", from = "" }: Counting): string => `
  insert into request_counts as counts (starts_at, caller_id, count) select ${WINDOW_START}, ${caller}, ${requests} ${from}
  on conflict (starts_at, caller_id) do update set count = counts.count + ${requests} where counts.count < ${limit}
  returning count`;

const COUNT_REQUEST = `with counted as (${countingSql({ caller: "$1::text", limit: "$2::int" })})
  select (select count from counted) as count, ${RESET_MS} as reset_ms`;

/** A caller's requests in the window that is open. */
export interface WindowCount {
  /** With this request; null when the limit was reached before it. */
  count: number | null;
  /** Milliseconds until the window ends. */
  resetMs: number;
}

/** The same as a statement gives it. */
interface CountRow {
  count: number | null;
  reset_ms: number;
}

const windowOf = ({ count, reset_ms: resetMs }: CountRow): WindowCount => ({ count, resetMs });

/** The rest of a limit in the window that is open. */
export interface Allowance {
  limit: number;
  /** Requests that are left after this one. */
  remaining: number;
  /** Milliseconds until the next window. */
  resetMs: number;
}

/**
 * Counts one request of a caller, in a statement of its own.
 * @param limit of requests in a window
 */
export async function countRequest(em: EntityManager, callerId: string, limit: number): Promise<WindowCount> {
  const statement = textStatement<CountRow>(COUNT_REQUEST, [callerId, limit]);
  const { rows } = await executePrepared(em, statement);
  const [row] = rows;
  if (!row) throw new Error("a request was not counted");
  return windowOf(row);
}

/** A look-up of the caller of a request by its credential. */
export interface Lookup<Row> {
  /** The name of the prepared statement; one name, one text. */
  name: string;
  /** Gives one row at most. It is built at the first look-up, and where the statement that counts fails. */
  query: () => { compile(): { sql: string }; executeTakeFirst(): Promise<Row | undefined> };
  /** SQL on the row: the id that the caller's requests are counted by. */
  callerId: string;
  /** SQL on the row: whether the credential is good. Any other request is not counted. */
  isGood: string;
  /**
   * First the values of `query`, in the order in which its SQL numbers them; then those of `callerId` and `isGood`, which
   * continue the numbers.
   */
  values: readonly unknown[];
}

/** A look-up must select this column: the team's own limit. */
interface LimitedRow {
  /** Requests that the plan allows each caller in a minute; null where it leaves that to the deployment. */
  requests_per_minute: number | null;
}

/** The row of a caller as the statement that counts gives it. */
type LookupRow = LimitedRow & CountRow & { failures: number };

/** The result of a look-up: the caller's row, and why its requests were not counted, where they were not. */
type LookedUp = { values: readonly unknown[] } & (
  | { row: LookupRow; error?: undefined }
  | { row: LimitedRow; error: unknown }
);

/** A caller that was looked up. */
export interface FoundCaller<Row> {
  /** One object for all requests that share the look-up. */
  row: Row;
  /** Those of the look-up. */
  values: readonly unknown[];
  /** The count after this request, of a credential that is good. Call it once. */
  window: (callerId: string) => WindowCount;
}

/** Texts of the statements that look up and count, by name: to build one takes longer than to count. */
const lookupTexts = new Map<string, string>();

function textOf(lookup: Lookup<unknown>): string {
  const text = lookupTexts.get(lookup.name) ?? lookupSql(lookup);
  lookupTexts.set(lookup.name, text);
  return text;
}

/**
 * After the look-up's own values come the address as a caller, its failures at most, the caller's requests at most, and
 * the requests that are counted.
 */
function lookupSql({ query, callerId, isGood, values }: Lookup<unknown>): string {
  const [address, failures, limit, requests] = [1, 2, 3, 4].map((place) => `$${values.length + place}`);
  return `
  with found as materialized (
    select record.*, coalesce(
      (select count from request_counts where starts_at = ${WINDOW_START} and caller_id = ${address}), 0) as failures
    from (${query().compile().sql}) as record
  ), counted as (${countingSql({
    caller: callerId,
    from: `from found where ${isGood} and failures < ${failures}`,
    limit: `(select least(${limit}::int, requests_per_minute) from found)`,
    requests: `${requests}::int`,
  })})
  -- As one value: to decode its many columns would take the process longer.
  select row_to_json(looked_up) as found from (
    select found.*, (select count from counted) as count, ${RESET_MS} as reset_ms from found) as looked_up`;
}

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

const refusal = (message: string, resetMs: number): ApiError =>
  new ApiError("rate_limit_exceeded", message, { retryAfterSeconds: Math.ceil(resetMs / 1_000) });

type Settings = Pick<Env, "RATE_LIMIT_PER_MINUTE" | "FAILED_AUTHENTICATIONS_PER_MINUTE">;

/** The limits on the requests of callers and on the failed authentications of addresses, as one process knows them. */
export class RequestLimits {
  /** Failed authentications of an address in a window. */
  readonly #maxFailures: number;
  readonly #maxRequests: number;
  readonly #onCountedAlone: (error: unknown) => void;
  /** Addresses that have used up their failures, with the end of the window by `performance.now()`. */
  readonly #blocked = new Remembered<number>();
  /** Digests of credentials, with the time by `performance.now()` at which each worked last. */
  readonly #worked = new Remembered<number>();
  /** Counts of this process alone, in windows of its own clock. */
  readonly #counts = new Remembered<number>();
  #countsFrom = 0;
  readonly #lookups = new Batches<LookedUp | undefined>();

  /** @param onCountedAlone is given the error for which Postgres did not count */
  constructor(settings: Settings, onCountedAlone: (error: unknown) => void) {
    this.#maxRequests = settings.RATE_LIMIT_PER_MINUTE;
    this.#maxFailures = settings.FAILED_AUTHENTICATIONS_PER_MINUTE;
    this.#onCountedAlone = onCountedAlone;
  }

  /** Requests of a caller in a window, by its team's own allowance: the smaller of the two limits. */
  limitFor(requestsPerMinute: number | null): number {
    return Math.min(this.#maxRequests, requestsPerMinute ?? this.#maxRequests);
  }

  /**
   * The allowance after a request that was counted, which the request's answer shows.
   * @returns also the refusal, where the limit was reached before
   */
  allowanceOf({ count, resetMs }: WindowCount, limit: number): { allowance: Allowance; refused?: ApiError } {
    if (count !== null) return { allowance: { limit, remaining: Math.max(0, limit - count), resetMs } };
    const refused = refusal(`The limit is ${limit} requests per ${WINDOW_SECONDS} seconds.`, resetMs);
    return { allowance: { limit, remaining: 0, resetMs }, refused };
  }

  /**
   * Looks a caller up and counts its request. Requests with one credential from one client that come while such a
   * statement runs share the next one: its row of counts admits one statement at a time anyway. While Postgres finds the
   * caller and does not count, this process counts alone.
   * @param credential what the requests of one caller have in common
   * @param lookup is asked for once for all requests that share it
   * @returns undefined where there is no such caller
   * @throws {ApiError} `rate_limit_exceeded` when another process has counted the last failures of the address
   */
  async findAndCount<Row extends LimitedRow>(
    em: EntityManager,
    clientAddress: string | null,
    credential: string,
    lookup: () => Lookup<Row>,
  ): Promise<FoundCaller<Row> | undefined> {
    const name = `${clientAddress} ${credential}`;
    const { result, size, place } = await this.#lookups.join(name, (size) =>
      this.#look(em, clientAddress, lookup(), size),
    );
    if (result === undefined) return undefined;
    // Calls of one name have one look-up.
    const row = result.row as Row & LookupRow;
    const limit = this.limitFor(row.requests_per_minute);
    const { error, values } = result;
    if (error !== undefined) return { row, values, window: (callerId) => this.#countAlone(callerId, limit, error) };
    if (clientAddress !== null && row.failures >= this.#maxFailures)
      throw this.blockAddress(clientAddress, row.reset_ms);
    const count = row.count === null ? null : row.count - size + place + 1;
    const window = { count: count !== null && count > limit ? null : count, resetMs: row.reset_ms };
    return { row, values, window: () => window };
  }

  /** @param size requests that are counted */
  async #look(
    em: EntityManager,
    clientAddress: string | null,
    lookup: Lookup<LimitedRow>,
    size: number,
  ): Promise<LookedUp | undefined> {
    const values = [...lookup.values, callerIdOfAddress(clientAddress), this.#maxFailures, this.#maxRequests, size];
    try {
      const statement = textStatement<{ found: LookupRow }>(textOf(lookup), values);
      const [looked] = (await executePrepared(em, statement)).rows;
      return looked && { row: looked.found, values: lookup.values };
    } catch (error) {
      if (isUnreachable(error) || isCancelled(error)) throw error;
      // The disk may be full, or the server takes no writes.
      const row = await lookup.query().executeTakeFirst();
      return row && { row, error, values: lookup.values };
    }
  }

  /**
   * Counts a request that is not one of an API's caller.
   * @throws {ApiError} `rate_limit_exceeded` beyond the limit of a window
   */
  async limitRequests(em: EntityManager, callerId: string, limit: number): Promise<void> {
    const { refused } = this.allowanceOf(await this.countFailure(em, callerId, limit), limit);
    if (refused) throw refused;
  }

  /** Counts one failure of an address; while Postgres does not, in this process alone. */
  async countFailure(em: EntityManager, callerId: string, limit: number): Promise<WindowCount> {
    try {
      return await countRequest(em, callerId, limit);
    } catch (error) {
      return this.#countAlone(callerId, limit, error);
    }
  }

  /** @param error for which Postgres did not count */
  #countAlone(callerId: string, limit: number, error: unknown): WindowCount {
    this.#onCountedAlone(error);
    const now = Date.now();
    const from = now - (now % WINDOW_MS);
    if (from !== this.#countsFrom) this.#counts.clear();
    this.#countsFrom = from;
    const count = (this.#counts.get(callerId) ?? 0) + 1;
    const resetMs = from + WINDOW_MS - now;
    if (count > limit) return { count: null, resetMs };
    this.#counts.set(callerId, count);
    return { count, resetMs };
  }

  /**
   * Runs the authentication of a caller, unless its address is blocked, and counts it when it fails. When many
   * attempts fail at once, exactly the limit's number get the reason; the others get `rate_limit_exceeded`.
   * @param clientAddress an address or a network; null where it is not known, and nothing is limited
   * @param identify gets the address whose failures limit this request; null for a credential that worked lately
   * @param credential with it a 503 counts too, apart: the credential could not be verified. It may be forged, or honest, so
   *   that too many of them block others like them, and not the keys of their address
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
    const restMs = (name: string) => (this.#blocked.get(name) ?? 0) - performance.now();
    if (restMs(clientAddress) > 0 && !hasWorked) throw this.#refusal(restMs(clientAddress));
    try {
      const identified = await identify(hasWorked ? null : clientAddress);
      if (credential !== undefined) this.#worked.set(digest, performance.now());
      return identified;
    } catch (error) {
      const { status } = error instanceof ApiError ? error : {};
      const isUnverified = status === 503 && credential !== undefined && !hasWorked;
      if (status !== 401 && !isUnverified) throw error;
      this.#worked.delete(digest);
      const name = isUnverified ? `${clientAddress}/unverified` : clientAddress;
      if (restMs(name) > 0) throw this.#refusal(restMs(name));
      const { count, resetMs } = await this.countFailure(em, callerIdOfAddress(name), this.#maxFailures);
      if (count === null) throw this.blockAddress(name, resetMs);
      if (count >= this.#maxFailures) this.blockAddress(name, resetMs);
      throw error;
    }
  }

  /** Refuses the address's requests until the window ends, without a query. @returns the refusal of this one */
  blockAddress(clientAddress: string, resetMs: number): ApiError {
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
