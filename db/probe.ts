import pg from "pg";

export interface Probe {
  /** @throws {Error} when it does not answer within the time, or takes no writes */
  check(): Promise<void>;
  close(): Promise<void>;
}

/** On a connection of its own, apart from those of requests. */
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
      // A server that is read only refuses it. The pool closes a connection after an error.
      await pool.query("delete from request_counts where false");
    },
    close: () => pool.end(),
  };
}
