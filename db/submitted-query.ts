import { type Connection, Query, type QueryConfig, type QueryResult } from "pg";

/** A connection in a COPY; the types of `pg` leave this out. */
export interface CopyConnection extends Connection {
  sendCopyFromChunk(chunk: Buffer): void;
  endCopyFrom(): void;
  sendCopyFail(reason: string): void;
}

/** The methods of a query of `pg` that this project overrides; its types leave them out. */
interface SubmittedQuery {
  submit(connection: Connection): Error | null;
  handleCommandComplete(message: { text: string }, connection: Connection): void;
  /** Postgres waits for the rows of a COPY. */
  handleCopyInResponse(connection: CopyConnection): void;
  /** Bytes of a COPY that Postgres sends. */
  handleCopyData(message: { chunk: Buffer }, connection: CopyConnection): void;
}

export type Callback = (error: Error | null, result: QueryResult) => void;

/** A query that `pg` sends, and that may handle Postgres's answers itself. */
export const SubmittedQuery = Query as unknown as new (
  config: QueryConfig,
  values: undefined,
  callback: Callback,
) => SubmittedQuery;
