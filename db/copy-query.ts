import type { Connection, QueryResult } from "pg";
import { type Callback, type CopyConnection, SubmittedQuery } from "./submitted-query.ts";

/** Bytes that are gathered for one write: Postgres sends a message for each row. */
const WRITE_BYTES = 65_536;

const COMMENT = "/* copy in snapshot";

/** SQL pattern of the statements that begin with `copyComment`. */
export const COPY_PATTERN = `${COMMENT} %`;

/** Begins both statements of a copy, and of no other one, so that `StalledCopies` finds one by the other. */
export const copyComment = (snapshot: string): string => `${COMMENT} ${snapshot} */`;

/** Passes the rows of the reading COPY to the writing one; when one fails, ends the other one. */
export class CopyPipe {
  readonly #waits = Promise.withResolvers<void>();
  #writer: CopyConnection | undefined;
  #reader: Connection | undefined;
  #isRead = false;
  readonly #gathered = Buffer.allocUnsafe(WRITE_BYTES);
  #bytes = 0;
  /** The first failure of the two. */
  failure: Error | undefined;
  /** Rows that Postgres has inserted. */
  rows = 0;

  /** Resolves when Postgres takes rows; rejects when it refuses to. */
  get writerWaits(): Promise<void> {
    return this.#waits.promise;
  }

  writeTo(writer: CopyConnection): void {
    this.#writer = writer;
    this.#waits.resolve();
  }

  /** @returns the failure of the writer, if it has failed already */
  readFrom(reader: Connection): Error | null {
    this.#reader = reader;
    return this.failure ?? null;
  }

  read(chunk: Buffer): void {
    // Rows still arrive after the writer has failed.
    if (this.failure !== undefined) return;
    // Copied: the bytes are those of a buffer that `pg` fills again.
    for (let at = 0; at < chunk.length; ) {
      const copied = chunk.copy(this.#gathered, this.#bytes, at);
      at += copied;
      this.#bytes += copied;
      if (this.#bytes === WRITE_BYTES) this.#write();
    }
  }

  #write(): void {
    if (!this.#writer || this.#bytes === 0) return;
    this.#writer.sendCopyFromChunk(this.#gathered.subarray(0, this.#bytes));
    this.#bytes = 0;
    const { stream } = this.#writer;
    const reader = this.#reader?.stream;
    if (!reader || !stream.writableNeedDrain || reader.isPaused()) return;
    reader.pause();
    const resume = () => {
      stream.off("drain", resume).off("close", resume);
      reader.resume();
    };
    stream.on("drain", resume).on("close", resume);
  }

  /** All rows are read. */
  endReading(): void {
    if (this.failure !== undefined) return;
    this.#isRead = true;
    this.#reader = undefined;
    this.#write();
    this.#writer?.endCopyFrom();
  }

  /** The reader has failed; after its last row that changes nothing. */
  failReading(error: Error): void {
    if (this.failure !== undefined || this.#isRead) return;
    this.failure = error;
    this.#writer?.sendCopyFail("the rows could not be read");
  }

  failWriting(error: Error): void {
    if (this.failure !== undefined) return;
    this.failure = error;
    this.#waits.reject(error);
    // Else Postgres would send all rows that are left.
    this.#reader?.stream.destroy();
  }
}

/** Keyed by the list of values of the writing statement, which is empty: Kysely passes on nothing else. */
const pipes = new WeakMap<object, CopyPipe>();

/** Makes the statement that is about to be run with this list of values write the rows of a copy. */
export function writeCopy(values: object, pipe: CopyPipe): void {
  pipes.set(values, pipe);
}

/** The statement that reads. */
export class CopyOutQuery extends SubmittedQuery {
  readonly #pipe: CopyPipe;

  constructor(pipe: CopyPipe, text: string, callback: Callback) {
    super({ text }, undefined, callback);
    this.#pipe = pipe;
  }

  override submit(connection: Connection): Error | null {
    return this.#pipe.readFrom(connection) ?? super.submit(connection);
  }

  override handleCopyData({ chunk }: { chunk: Buffer }): void {
    this.#pipe.read(chunk);
  }

  override handleCommandComplete(message: { text: string }, connection: Connection): void {
    this.#pipe.endReading();
    super.handleCommandComplete(message, connection);
  }
}

/** The statement that writes. */
class CopyInQuery extends SubmittedQuery {
  readonly #pipe: CopyPipe;

  constructor(pipe: CopyPipe, text: string, callback: Callback) {
    super({ text }, undefined, callback);
    this.#pipe = pipe;
  }

  override handleCopyInResponse(connection: CopyConnection): void {
    this.#pipe.writeTo(connection);
  }

  override handleCommandComplete(message: { text: string }, connection: Connection): void {
    this.#pipe.rows = Number(message.text.split(" ")[1]);
    super.handleCommandComplete(message, connection);
  }
}

/** The query of `pg` for a statement that writes a copy, and its result; undefined for any other statement. */
export function copyQuery(
  text: string,
  values: object,
): { query: InstanceType<typeof SubmittedQuery>; result: Promise<QueryResult> } | undefined {
  const pipe = pipes.get(values);
  if (!pipe) return undefined;
  const { promise: result, resolve, reject } = Promise.withResolvers<QueryResult>();
  const callback: Callback = (error, answer) => (error ? reject(error) : resolve(answer));
  return { query: new CopyInQuery(pipe, text, callback), result };
}
