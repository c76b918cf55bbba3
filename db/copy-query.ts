import type { Connection, QueryResult } from "pg";
import { type Callback, type CopyConnection, SubmittedQuery } from "./submitted-query.ts";

/** Bytes that are gathered for one write: Postgres sends a message for each row. */
const WRITE_BYTES = 65_536;

/** Takes the rows of one COPY to another, and stops the one where the other one fails. */
export class CopyPipe {
  readonly #waits = Promise.withResolvers<true>();
  #writer: CopyConnection | undefined;
  #reader: Connection | undefined;
  readonly #gathered = Buffer.allocUnsafe(WRITE_BYTES);
  #bytes = 0;
  /** The first failure of the two. */
  failure: Error | undefined;
  /** Rows that Postgres has inserted. */
  rows = 0;

  /** Resolves when Postgres takes rows. */
  get writerWaits(): Promise<true> {
    return this.#waits.promise;
  }

  writeTo(writer: CopyConnection): void {
    this.#writer = writer;
    this.#waits.resolve(true);
  }

  /** @returns the failure of the writer, if it has failed already */
  readFrom(reader: Connection): Error | null {
    this.#reader = reader;
    return this.failure ?? null;
  }

  read(chunk: Buffer): void {
    // What is under way when the writer has failed.
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
    this.#write();
    this.#writer?.endCopyFrom();
  }

  failReading(error: Error): void {
    if (this.failure !== undefined) return;
    this.failure = error;
    this.#writer?.sendCopyFail("the rows could not be read");
  }

  failWriting(error: Error): void {
    if (this.failure !== undefined) return;
    this.failure = error;
    // Postgres would send the rest of the rows, however many they are.
    this.#reader?.stream.destroy();
  }
}

/** The part of a connection in a copy. */
export interface CopySide {
  pipe: CopyPipe;
  reads: boolean;
}

/** By the list of values of the statement, which has none: Kysely passes on nothing else. */
const sides = new WeakMap<object, CopySide>();

/** Makes the statement that is about to be run with this list of values a part of a copy. */
export function takePartInCopy(values: object, side: CopySide): void {
  sides.set(values, side);
}

class CopyOutQuery extends SubmittedQuery {
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

/** The query of `pg` for a statement that `insertByCopy` runs, and its result; undefined for any other statement. */
export function copyQuery(
  text: string,
  values: object,
): { query: InstanceType<typeof SubmittedQuery>; result: Promise<QueryResult> } | undefined {
  const side = sides.get(values);
  if (!side) return undefined;
  const { pipe, reads } = side;
  const { promise: result, resolve, reject } = Promise.withResolvers<QueryResult>();
  const callback = (error: Error | null, answer: QueryResult) => {
    if (!error) return resolve(answer);
    if (reads) pipe.failReading(error);
    else pipe.failWriting(error);
    reject(error);
  };
  return { query: new (reads ? CopyOutQuery : CopyInQuery)(pipe, text, callback), result };
}
