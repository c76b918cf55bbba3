import { type MikroORM, openDatabase } from "../../db/orm.ts";
import type { ConnectionPool } from "../../db/pool.ts";

/** A statement as the driver got it. */
export interface Statement {
  text: string;
  values: unknown[];
}

export interface RecordingOrm {
  orm: MikroORM;
  /** Statements of all connections, oldest first; a test may empty it. */
  statements: Statement[];
}

/** Opens a pool whose statements a test looks at. */
export async function openRecordingOrm(databaseUrl: string): Promise<RecordingOrm> {
  const statements: Statement[] = [];
  const watch = (pool: ConnectionPool) => {
    pool.on("connect", (client: { query(text: unknown, values?: unknown, ...rest: unknown[]): unknown }) => {
      const query = client.query.bind(client);
      client.query = (text, values, ...rest) => {
        const plain = typeof text === "string" ? { text, values } : (text as Partial<Statement>);
        if (typeof plain.text === "string") {
          statements.push({ text: plain.text, values: Array.isArray(plain.values) ? [...plain.values] : [] });
        }
        return query(text, values, ...rest);
      };
    });
  };
  return { orm: await openDatabase(databaseUrl, { poolMax: 5, onPool: watch }), statements };
}
