import { type MikroORM, openDatabase } from "../../db/orm.ts";
import type { ConnectionPool } from "../../db/pool.ts";
import type { TestApp } from "./app.ts";

/** A statement as the driver got it. */
export interface Statement {
  text: string;
  values: unknown[];
}

/** The parts of a `pg` client that are used here. */
interface WatchedClient {
  query(text: unknown, values?: unknown, ...rest: unknown[]): unknown;
  connection: { stream: { bytesRead: number } };
}

export interface RecordingOrm {
  orm: MikroORM;
  /** Statements of all connections, oldest first; a test may empty it. */
  statements: Statement[];
  /** Bytes that Postgres has sent. */
  bytesRead(): number;
}

/** Opens a pool whose statements and traffic a test looks at. */
export async function openRecordingOrm(databaseUrl: string, poolMax = 5): Promise<RecordingOrm> {
  const statements: Statement[] = [];
  const clients: WatchedClient[] = [];
  const watch = (pool: ConnectionPool) => {
    pool.on("connect", (client: WatchedClient) => {
      clients.push(client);
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
  const orm = await openDatabase(databaseUrl, { poolMax, onPool: watch });
  return {
    orm,
    statements,
    bytesRead: () => clients.reduce((sum, { connection }) => sum + connection.stream.bytesRead, 0),
  };
}

/** Statements that reach Postgres during `work`, counted at the driver, on the connection that it takes first. */
export async function countStatements(app: TestApp, work: () => Promise<unknown>): Promise<number> {
  const pool = await app.deps.orm.em.getDriver().getConnection().getNativeClient();
  let statements = 0;
  const count = (client: { query: (...args: never[]) => unknown }) => {
    const query = client.query.bind(client);
    client.query = (...args: never[]) => {
      statements++;
      return query(...args);
    };
  };
  pool.once("acquire", count);
  await work();
  return statements;
}
