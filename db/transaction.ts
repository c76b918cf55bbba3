import { setTimeout as delay } from "node:timers/promises";
import { IsolationLevel } from "@mikro-orm/postgresql";
import type { EntityManager } from "./orm.ts";

/** Serialization failure and deadlock. */
const CONFLICTS = new Set(["40001", "40P01"]);

export const isConflict = (error: unknown): boolean =>
  error instanceof Error && "code" in error && CONFLICTS.has(String(error.code));

interface TransactionOptions {
  isolationLevel?: IsolationLevel;
  attempts?: number;
  /** Undoes the work of one that succeeds, too. */
  isRolledBack?: boolean;
}

const commits = new WeakMap<object, Map<unknown, () => void>>();

/** Once per key, when the transaction of `em` has committed; it must be one that `transaction` opened. */
export function afterCommit(em: EntityManager, key: unknown, act: () => void): void {
  const context = em.getTransactionContext<object>();
  const acts = context && commits.get(context);
  if (!acts) throw new Error("there is no transaction to wait for");
  acts.set(key, act);
}

async function once<T>(
  em: EntityManager,
  work: (em: EntityManager) => Promise<T>,
  { isolationLevel = IsolationLevel.READ_COMMITTED, isRolledBack = false }: TransactionOptions,
): Promise<T> {
  const acts = new Map<unknown, () => void>();
  await em.begin({ isolationLevel });
  try {
    commits.set(em.getTransactionContext<object>() ?? em, acts);
    const result = await work(em);
    if (isRolledBack) {
      await em.rollback();
      return result;
    }
    await em.commit();
    for (const act of acts.values()) act();
    return result;
  } catch (error) {
    // A connection that died cannot roll back; the reason is the first error.
    await em.rollback().catch(() => undefined);
    throw error;
  }
}

/**
 * Runs `work` in a transaction, and repeats it when Postgres reports a conflict: it must have no effect outside the
 * database. Inside a transaction it joins that one, and the call that opened it does the repeating.
 */
export async function transaction<T>(
  em: EntityManager,
  work: (em: EntityManager) => Promise<T>,
  options: TransactionOptions = {},
): Promise<T> {
  const { attempts = 12 } = options;
  if (em.isInTransaction()) return work(em);
  for (let attempt = 1; ; attempt++) {
    try {
      return await once(em.fork(), work, options);
    } catch (error) {
      if (!isConflict(error) || attempt >= attempts) throw error;
      // A random delay, so that the two that conflicted do not conflict again.
      await delay(Math.random() * 20 * attempt);
    }
  }
}

export { IsolationLevel };
