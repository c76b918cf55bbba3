/**
 * How long a migration waits for the lock of a table. Meanwhile every other statement on the table waits behind it, so it is
 * shorter than a request's.
 */
export const MIGRATION_LOCK_MS = 5_000;

/** A migration that another transaction keeps from a table. The text is for the operator. */
export class MigrationBlockedError extends Error {
  constructor(cause: unknown) {
    super(
      `A migration waited ${MIGRATION_LOCK_MS / 1_000} s for a lock that another transaction holds, and gave up, because every ` +
        "query on the table would have waited behind it. It changed nothing. Look for the transaction in pg_stat_activity by " +
        "its xact_start, wait for its end or end it with pg_terminate_backend, and migrate again.",
      { cause },
    );
  }
}
