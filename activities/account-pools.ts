import type { MikroORM } from "@mikro-orm/postgresql";
import type { Logger } from "pino";
import { withoutSpan } from "../config/tracing.ts";
import { recordLogin, recordRefusedLogin } from "../domain/accounts/accounts.ts";
import { accessTokenOf, type PostForm, TokenError } from "../domain/accounts/tokens.ts";
import type { AccountFailure } from "../domain/mail/outcome.ts";
import type { SmtpGuard } from "../domain/mail/smtp-guard.ts";
import { sealContext, type Vault } from "../domain/secrets/crypto.ts";
import type { Refusal } from "../domain/sends/ledger/account-capacity.ts";
import {
  type AccountServer,
  LEASE_SECONDS,
  leaseConnections,
  readAccountServer,
  releaseConnections,
  renewLease,
  type SendingAccount,
} from "../domain/sends/ledger/account-capacity.ts";
import type { SmtpLimits } from "./smtp/limits.ts";
import type { SmtpAccount } from "./smtp/login.ts";
import { SmtpPool } from "./smtp/pool.ts";

/** Rows that one statement stages at most. */
const MOST_ROWS = 100;

/** The limit of rows that all sends on a pool together may have SENDING. */
export class InFlightLimit {
  readonly #pool: Pick<SmtpPool, "mostInFlight" | "batch">;
  #taken = 0;
  #waiting: (() => void)[] = [];

  constructor(pool: Pick<SmtpPool, "mostInFlight" | "batch">) {
    this.#pool = pool;
  }

  /**
   * Takes room for the rows of a batch before they are staged: if the answer is lost, they are SENDING.
   * @returns how many were taken, once there is room; 0 when `signal` is aborted first
   */
  async take(signal: AbortSignal): Promise<number> {
    const wake = () => this.giveBack(0);
    signal.addEventListener("abort", wake);
    try {
      while (!signal.aborted) {
        // At each look, because both may have fallen meanwhile.
        const wanted = Math.min(MOST_ROWS, this.#pool.batch);
        if (this.#taken + wanted <= this.#pool.mostInFlight) {
          this.#taken += wanted;
          return wanted;
        }
        await new Promise<void>((resolve) => this.#waiting.push(resolve));
      }
      return 0;
    } finally {
      signal.removeEventListener("abort", wake);
    }
  }

  giveBack(rows: number): void {
    this.#taken -= rows;
    for (const resolve of this.#waiting.splice(0)) resolve();
  }
}

export interface AccountPool {
  readonly pool: SmtpPool;
  readonly inFlight: InFlightLimit;
}

export interface NoPool {
  /** It has to wait; without a refusal, other workers hold all connections. */
  refusal?: Refusal | undefined;
  isGone?: true | undefined;
}

interface Held extends AccountPool {
  users: number;
  /** More may still be open for a moment after a smaller share was given. */
  connections: number;
  renewal: NodeJS.Timeout;
  idle?: NodeJS.Timeout | undefined;
  /** The settings that the pool was made from; another password or host needs another pool. */
  fingerprint: string;
}

/** An unused pool keeps its connections for longer than the gap between two slices; others may wait for them. */
const IDLE_MS = 1_000;

export interface LoginDeps {
  orm: MikroORM;
  vault: Vault;
  postForm: PostForm;
  log: Logger;
}

export function loginOf(
  accountId: string,
  server: AccountServer,
  { orm, vault, postForm, log }: LoginDeps,
): Pick<SmtpAccount, "host" | "port" | "secure" | "user" | "pass" | "accessToken"> {
  const { host, port, security: secure, username, encrypted_password: sealed, grant_version } = server;
  const login = { host, port, secure, user: username ?? undefined };
  if (grant_version === null) {
    const context = sealContext("email_accounts", "encrypted_password", accountId);
    return { ...login, pass: sealed === null ? undefined : vault.decrypt(sealed, context) };
  }
  const accessToken = async (refused?: string) => {
    try {
      return await accessTokenOf(orm.em.fork(), accountId, { vault, postForm }, refused);
    } catch (error) {
      // A TokenError is the account's failure, which is recorded; another one shows nowhere else.
      if (!(error instanceof TokenError)) log.warn({ accountId, err: error }, "an access token could not be read");
      throw error;
    }
  };
  return { ...login, accessToken };
}

interface Options extends LoginDeps {
  workerId: string;
  guard: SmtpGuard;
  /** The share of each team in the thread on which messages are filled. */
  slots: { restMs(teamId: string): number; countFill(teamId: string, tookMs: number): void };
  name?: string | undefined;
  limits: SmtpLimits;
}

/**
 * One pool per account and process, shared by all sends on it, never more connections than are leased. A pool outlives
 * a slice, so that the next one finds its connections warm.
 */
export class AccountPools {
  readonly #options: Options;
  readonly #held = new Map<string, Held>();
  readonly #turns = new Map<string, Promise<void>>();
  readonly #refused = new Set<string>();

  constructor(options: Options) {
    this.#options = options;
  }

  /** @param options `tryNow`: an operator's command, it does not wait after a refusal */
  acquire(account: SendingAccount, options: { tryNow?: boolean | undefined }): Promise<AccountPool | NoPool> {
    return this.#inTurn(account.accountId, () => this.#acquire(account, options));
  }

  async #acquire(
    account: SendingAccount,
    { tryNow = false }: { tryNow?: boolean | undefined },
  ): Promise<AccountPool | NoPool> {
    const { orm, workerId, guard, slots, name, limits } = this.#options;
    const { accountId, teamId } = account;
    const isLoggedIn = this.#held.get(accountId)?.pool.isLoggedIn ?? false;
    const lease = await leaseConnections(orm.em.fork(), account, workerId, { isLoggedIn, tryNow });
    const { connections, refusal, isGone } = lease;
    if (refusal) this.#refused.add(accountId);
    if (connections === 0) return refusal && refusal.retryInMs > 0 ? { refusal } : { isGone };
    const server = await readAccountServer(orm.em.fork(), account);
    const fingerprint = JSON.stringify(server);
    let held = this.#held.get(accountId);
    if (held && held.fingerprint !== fingerprint) {
      this.#held.delete(accountId);
      void this.#drop(accountId, held);
      held = undefined;
    }
    if (!held) {
      const pool = new SmtpPool({
        ...loginOf(accountId, server, this.#options),
        guard,
        name,
        limits,
        maxConnections: connections,
        thread: { restMs: () => slots.restMs(teamId), countFill: (tookMs) => slots.countFill(teamId, tookMs) },
        onAccess: (failure) => this.#recordAccess(account, failure),
      });
      held = {
        pool,
        inFlight: new InFlightLimit(pool),
        users: 0,
        connections,
        fingerprint,
        renewal: withoutSpan(() => setInterval(() => void this.#renew(accountId), (LEASE_SECONDS * 1000) / 3)),
      };
      held.renewal.unref();
      this.#held.set(accountId, held);
    }
    held.users++;
    clearTimeout(held.idle);
    if (!isLoggedIn) held.pool.tryNow();
    held.pool.setConnections(connections);
    // A smaller share than before: idle connections are closed already, busy ones are given back by a renewal.
    const isLess = connections < held.connections;
    held.connections = connections;
    if (isLess) void this.#renew(accountId);
    return held;
  }

  /** A pool that stays unused is closed after a moment. */
  release(accountId: string, { pool }: AccountPool): void {
    const held = this.#held.get(accountId);
    if (held?.pool === pool && --held.users === 0) this.#closeUnused(accountId, held);
  }

  #closeUnused(accountId: string, held: Held): void {
    const close = () => {
      const { late } = held.pool;
      if (late === 0) {
        this.#held.delete(accountId);
        void this.#drop(accountId, held);
        return;
      }
      // Connections with a late dot are kept; a renewal gives back the others.
      held.connections = late;
      held.pool.setConnections(late);
      void this.#renew(accountId);
      this.#closeUnused(accountId, held);
    };
    held.idle = withoutSpan(() => setTimeout(close, IDLE_MS).unref());
  }

  async close(): Promise<void> {
    const all = [...this.#held];
    this.#held.clear();
    await Promise.all(all.map(([accountId, held]) => this.#drop(accountId, held)));
  }

  async #renew(accountId: string): Promise<void> {
    const { orm, workerId, log } = this.#options;
    const held = this.#held.get(accountId);
    if (!held) return;
    try {
      const renew = () => renewLease(orm.em.fork(), accountId, workerId, Math.max(held.connections, held.pool.open));
      if (await this.#inTurn(accountId, renew)) return;
      log.warn({ accountId }, "a connection lease ran out; closing its connections");
      if (this.#held.get(accountId) === held) this.#held.delete(accountId);
      await this.#drop(accountId, held);
    } catch (error) {
      log.warn({ accountId, err: error }, "a connection lease could not be renewed");
    }
  }

  /** For all processes. */
  #recordAccess(account: SendingAccount, failure: AccountFailure | undefined): void {
    const { orm, log } = this.#options;
    const { accountId } = account;
    if (failure) this.#refused.add(accountId);
    else if (!this.#refused.delete(accountId)) return;
    const record = async () => {
      if (failure) await recordRefusedLogin(orm.em.fork(), account, failure);
      else await recordLogin(orm.em.fork(), account);
    };
    void this.#inTurn(accountId, record).catch((error: unknown) =>
      log.warn({ accountId, err: error }, "whether the server lets an account in could not be recorded"),
    );
  }

  /** One statement at a time: a renewal counts open connections and must not cross a lease that allows more of them. */
  #inTurn<T>(accountId: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(accountId) ?? Promise.resolve()).then(work);
    const ended = turn.then(
      () => undefined,
      () => undefined,
    );
    this.#turns.set(accountId, ended);
    void ended.then(() => this.#turns.get(accountId) === ended && this.#turns.delete(accountId));
    return turn;
  }

  async #drop(accountId: string, held: Held): Promise<void> {
    const { orm, workerId, limits, log } = this.#options;
    clearInterval(held.renewal);
    clearTimeout(held.idle);
    await held.pool.close({ graceMs: limits.connect });
    const release = async () => {
      if (!this.#held.has(accountId)) await releaseConnections(orm.em.fork(), accountId, workerId);
    };
    await this.#inTurn(accountId, release).catch((error: unknown) =>
      log.warn({ accountId, err: error }, "a connection lease could not be given back; it runs out by itself"),
    );
  }
}
