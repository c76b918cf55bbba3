import pg from "pg";

/** Asks whether Postgres answers. */
export interface Probe {
  /** @throws {Error} when it does not answer within the time */
  check(): Promise<void>;
  close(): Promise<void>;
}

/**
 * A probe with a connection of its own, so that it neither waits for the connections that requests use nor takes one.
 * @param timeoutMs for the connection and for the answer, each
 */
export function openProbe(databaseUrl: string, timeoutMs: number): Probe {
  const pool = new pg.Pool({
    connectionString: databaseUrl,
    application_name: "mailkeel readiness",
    max: 1,
    connectionTimeoutMillis: timeoutMs,
    query_timeout: timeoutMs,
  });
  // A connection that ends while it is idle: the next check makes another one.
  pool.on("error", () => {});
  return {
    check: async () => {
      await pool.query("select 1");
    },
    close: () => pool.end(),
  };
}
