import pg from "pg";

export interface Probe {
  /** @throws {Error} when it does not answer within the time */
  check(): Promise<void>;
  close(): Promise<void>;
}

/**
 * Has a connection of its own: it neither waits for those of requests nor takes one.
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
  pool.on("error", () => {});
  return {
    check: async () => {
      await pool.query("select 1");
    },
    close: () => pool.end(),
  };
}
