import { setTimeout as delay } from "node:timers/promises";
import { IsolationLevel } from "@mikro-orm/postgresql";
import type { EntityManager } from "./orm.ts";

/** SQLSTATEs after which the same transaction may well succeed: serialization failure and deadlock. */
const CONFLICTS = new Set(["40001", "40P01"]);

export const isConflict = (error: unknown): boolean =>
  error instanceof Error && "code" in error && CONFLICTS.has(String(error.code));

interface TransactionOptions {
  isolationLevel?: IsolationLevel;
  /** How often it is tried in all. */
  attempts?: number;
}

/**
 * Runs `work` in a transaction, and again from the start when the database says that it met another one. `work` gets a
 * fork whose tenant filter is that of `em`; it must have no effect outside the database. Inside a transaction it joins
 * that one, and whoever opened it does the trying again.
 */
export async function transaction<T>(
  em: EntityManager,
  work: (em: EntityManager) => Promise<T>,
  { isolationLevel = IsolationLevel.READ_COMMITTED, attempts = 12 }: TransactionOptions = {},
): Promise<T> {
  if (em.isInTransaction()) return work(em);
  for (let attempt = 1; ; attempt++) {
    try {
      return await em.fork().transactional(work, { isolationLevel });
    } catch (error) {
      if (!isConflict(error) || attempt >= attempts) throw error;
      // Those that met part at random, so that they do not meet again.
      await delay(Math.random() * 20 * attempt);
    }
  }
}

export { IsolationLevel };
