import { setImmediate as allRead } from "node:timers/promises";
import { DatabaseError, type Pool, type PoolClient, type QueryConfig, type QueryResult } from "pg";
import { Lines } from "./lines.ts";
import type { EntityManager } from "./orm.ts";
import type { CompiledStatement, NamedValues } from "./prepared.ts";

/**
 * Connections that the reads of one line hold at once. The second one reads while this process handles the rows of the
 * first.
 */
const CONNECTIONS_OF_A_LINE = 2;
/** Statements that are sent together at most: the last one waits for all before it. */
const SENT_TOGETHER = 8;

interface Waiting {
  statement: QueryConfig;
  resolve: (result: QueryResult) => void;
  reject: (error: unknown) => void;
}

/** Statements of one line. */
class Line {
  connections = 0;
  waiting: Waiting[] = [];
}

/**
 * Runs reads on few connections. While the connections of a line (e.g. a team) are busy, and until the process has handled
 * all that it has received, the line's statements gather, and are then sent to Postgres in one packet. That wakes Postgres's
 * process once for all of them, and this process once for their rows; and a team takes two connections, however many reads
 * it begins at once.
 */
class SharedReads {
  readonly #pool: Promise<Pool>;
  readonly #lines = new Lines(
    () => new Line(),
    (line) => line.connections === 0,
  );

  constructor(pool: Promise<Pool>) {
    this.#pool = pool;
  }

  run(lineId: string, statement: QueryConfig): Promise<QueryResult> {
    const line = this.#lines.of(lineId);
    return new Promise((resolve, reject) => {
      line.waiting.push({ statement, resolve, reject });
      if (line.connections < CONNECTIONS_OF_A_LINE) void this.#read(line);
    });
  }

  /** Runs the waiting statements of a line on one connection at a time, until none is left. */
  async #read(line: Line): Promise<void> {
    line.connections++;
    await allRead();
    // Each group queues for a connection anew, so that lines take turns.
    while (line.waiting.length > 0) {
      await this.#readGroup(line);
      await allRead();
    }
    line.connections--;
  }

  /** When no connection can be made, only the reads that were waiting at the beginning of the try fail. */
  async #readGroup(line: Line): Promise<void> {
    const asking = new Set(line.waiting);
    try {
      const client = await (await this.#pool).connect();
      const hasEnded = await sendTogether(client, line.waiting.splice(0, SENT_TOGETHER));
      client.release(hasEnded);
    } catch (error) {
      for (const { reject } of line.waiting.filter((read) => asking.has(read))) reject(error);
      line.waiting = line.waiting.filter((read) => !asking.has(read));
    }
  }
}

/**
 * SQLSTATE of a statement whose name is not prepared. Statements of the same name in one packet rely on the first to be
 * parsed: when that one was cancelled, the others fail with this code.
 */
const NOT_PREPARED = "26000";

/** Runs a read, once more if the read before it failed to prepare their statement. */
async function query(client: PoolClient, statement: QueryConfig): Promise<QueryResult> {
  try {
    return await client.query(statement);
  } catch (error) {
    if (error instanceof DatabaseError && error.code === NOT_PREPARED) return client.query(statement);
    throw error;
  }
}

/** Whether Postgres ends the session with this error; the connection closes a moment later. */
const isFatal = (error: unknown): boolean => error instanceof DatabaseError && error.severity === "FATAL";

/** Sends statements in one packet, and hands each its own result. @returns whether Postgres has ended the session */
async function sendTogether(client: PoolClient, group: readonly Waiting[]): Promise<boolean> {
  const { stream } = client.connection;
  stream.cork();
  const results = group.map(async ({ statement, resolve, reject }) => {
    try {
      resolve(await query(client, statement));
      return false;
    } catch (error) {
      reject(error);
      return isFatal(error);
    }
  });
  stream.uncork();
  return (await Promise.all(results)).includes(true);
}

/** One for each driver, which has one pool. */
const shared = new WeakMap<object, SharedReads>();

function sharedReads(em: EntityManager): SharedReads {
  const driver = em.getDriver();
  const reads = shared.get(driver) ?? new SharedReads(driver.getConnection().getNativeClient());
  shared.set(driver, reads);
  return reads;
}

/**
 * Runs a read outside of any transaction, on connections that all reads of a line share.
 * @param lineId the team's id: no other team waits for its reads
 */
export async function executeShared<Row>(
  em: EntityManager,
  lineId: string,
  statement: CompiledStatement<Row>,
  values: NamedValues,
): Promise<readonly Row[]> {
  const { rows } = await sharedReads(em).run(lineId, statement.with(values));
  // A statement's compiled text fixes the type of its rows.
  return rows as Row[];
}
