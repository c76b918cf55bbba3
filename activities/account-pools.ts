import type { MikroORM } from "@mikro-orm/postgresql";
import type { Logger } from "pino";
import type { SmtpSecurity } from "../db/entities/account.ts";
import { kysely } from "../db/orm.ts";
import { passwordContext } from "../domain/accounts.ts";
import type { Vault } from "../domain/crypto.ts";
import { LEASE_SECONDS, leaseConnections, releaseConnections, renewLease } from "../domain/sends/account-capacity.ts";
import { SmtpPool } from "./smtp/pool.ts";

/** Rows that may be SENDING at once, per connection: one in flight, one staged, one not yet settled. */
const ROWS_PER_CONNECTION = 3;

/** What a crash can leave unknown: the rows that all sends on a pool together may have SENDING. */
export class RowBudget {
  readonly #pool: Pick<SmtpPool, "connections">;
  #taken = 0;
  #waiting: (() => void)[] = [];

  constructor(pool: Pick<SmtpPool, "connections">) {
    this.#pool = pool;
  }

  /** Takes room for `rows`, all or nothing. Before they are staged: should the answer get lost, they are SENDING. */
  take(rows: number): boolean {
    if (this.#taken + rows > ROWS_PER_CONNECTION * this.#pool.connections) return false;
    this.#taken += rows;
    return true;
  }

  giveBack(rows: number): void {
    this.#taken -= rows;
    if (rows > 0) this.wake();
  }

  /** Resolves when there may be room again. */
  returned(): Promise<void> {
    return new Promise((resolve) => this.#waiting.push(resolve));
  }

  /** Lets everybody who waits look again. */
  wake(): void {
    const waiting = this.#waiting;
    this.#waiting = [];
    for (const resolve of waiting) resolve();
  }
}

/** An account's connections in this process, and the room for rows that goes with them. */
export interface AccountPool {
  readonly pool: SmtpPool;
  readonly rows: RowBudget;
}

interface Held extends AccountPool {
  users: number;
  /** How many connections it may have; more may still be open for a moment after a smaller share was given. */
  connections: number;
  renewal: NodeJS.Timeout;
  idle?: NodeJS.Timeout | undefined;
  /** What the pool was made from; another password or host asks for another pool. */
  fingerprint: string;
}

/** How long a pool that nobody uses keeps its connections and its lease: the gap between two slices of a send. */
const IDLE_MS = 5_000;

interface Options {
  orm: MikroORM;
  vault: Vault;
  log: Logger;
  workerId: string;
  timeoutMs: number;
}

/**
 * This process's connections to sending accounts: one pool per account, shared by all sends on it, never more
 * connections than are leased. A pool outlives a slice, so that a send's next slice finds its connections warm.
 */
export class AccountPools {
  readonly #options: Options;
  readonly #held = new Map<string, Held>();
  /** The last of those who ask Postgres about an account's lease. */
  readonly #turns = new Map<string, Promise<void>>();

  constructor(options: Options) {
    this.#options = options;
  }

  /**
   * The account's pool, limited to the connections this process may open now.
   * @returns undefined when other workers hold all of them
   */
  acquire(accountId: string): Promise<AccountPool | undefined> {
    return this.#inTurn(accountId, () => this.#acquire(accountId));
  }

  async #acquire(accountId: string): Promise<AccountPool | undefined> {
    const { orm, vault, workerId, timeoutMs } = this.#options;
    const connections = await leaseConnections(orm.em.fork(), accountId, workerId);
    if (connections === 0) return undefined;
    const account = await kysely(orm.em.fork())
      .selectFrom("email_accounts")
      .select(["host", "port", "security", "username", "encrypted_password"])
      .where("id", "=", accountId)
      .executeTakeFirstOrThrow();
    const fingerprint = JSON.stringify(account);
    let held = this.#held.get(accountId);
    if (held && held.fingerprint !== fingerprint) {
      this.#held.delete(accountId);
      void this.#drop(accountId, held);
      held = undefined;
    }
    if (!held) {
      const pass = account.encrypted_password;
      const pool = new SmtpPool({
        host: account.host,
        port: account.port,
        secure: account.security satisfies SmtpSecurity,
        user: account.username ?? undefined,
        pass: pass === null ? undefined : vault.decrypt(pass, passwordContext(accountId)),
        timeoutMs,
        maxConnections: connections,
      });
      held = {
        pool,
        rows: new RowBudget(pool),
        users: 0,
        connections,
        fingerprint,
        renewal: setInterval(() => void this.#renew(accountId), (LEASE_SECONDS * 1000) / 3),
      };
      held.renewal.unref();
      this.#held.set(accountId, held);
    }
    held.users++;
    clearTimeout(held.idle);
    held.pool.setConnections(connections);
    // A smaller share than before: what idled is closed already, what is in hand is given back by a renewal.
    const isLess = connections < held.connections;
    held.connections = connections;
    if (isLess) void this.#renew(accountId);
    return held;
  }

  /** Ends one use; the pool is given up when nobody uses it for a while. */
  release(accountId: string, { pool }: AccountPool): void {
    const held = this.#held.get(accountId);
    if (held?.pool !== pool) return;
    held.users--;
    if (held.users > 0) return;
    held.idle = setTimeout(() => {
      if (held.users > 0) return;
      this.#held.delete(accountId);
      void this.#drop(accountId, held);
    }, IDLE_MS);
    held.idle.unref();
  }

  /** Closes every pool and gives the leases back. */
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

  /** A renewal counts what is open: it must not cross with a lease that lets more be opened. */
  #inTurn<T>(accountId: string, work: () => Promise<T>): Promise<T> {
    const turn = (this.#turns.get(accountId) ?? Promise.resolve()).then(work);
    const over = turn.then(
      () => undefined,
      () => undefined,
    );
    this.#turns.set(accountId, over);
    void over.then(() => this.#turns.get(accountId) === over && this.#turns.delete(accountId));
    return turn;
  }

  async #drop(accountId: string, held: Held): Promise<void> {
    const { orm, workerId, timeoutMs, log } = this.#options;
    clearInterval(held.renewal);
    clearTimeout(held.idle);
    await held.pool.close({ graceMs: timeoutMs });
    if (this.#held.has(accountId)) return;
    await releaseConnections(orm.em.fork(), accountId, workerId).catch((error: unknown) =>
      log.warn({ accountId, err: error }, "a connection lease could not be given back; it runs out by itself"),
    );
  }
}
