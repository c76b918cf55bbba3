import { MailkeelError } from "./errors.ts";
import type { Page } from "./transport.ts";

/** Records per request of an incremental run: as many as the service gives at most. */
const LARGEST_PAGE = 100;

/** The query parameters that every list takes. */
interface PageQuery {
  cursor?: string;
  limit?: number;
}

/** The first page of a list when it is awaited, and every record of the list when it is iterated over. */
export type Listing<Item> = Promise<Page<Item>> & AsyncIterable<Item>;

/**
 * Reads a list. An iteration asks for further pages as their records are taken. Records that are added or deleted
 * meanwhile make none come twice or be left out.
 * @throws {MailkeelError} at each page, as a request does; `cursor_invalid` after an update of the service: begin again
 *   from the first page
 */
export function listingOf<Item, Query extends PageQuery>(
  readPage: (query: Query) => Promise<Page<Item>>,
  query: Query,
): Listing<Item> {
  const first = readPage(query);
  // An iteration that begins later throws its error; until then it would end the process as an unhandled rejection.
  first.catch(() => undefined);
  async function* items(): AsyncGenerator<Item, void, undefined> {
    for (let page = await first; ; ) {
      yield* page.data;
      const cursor = page.meta.nextCursor;
      if (cursor === null) return;
      page = await readPage({ ...query, cursor });
    }
  }
  return Object.assign(first, { [Symbol.asyncIterator]: items });
}

/**
 * The records of a list that changed since an instant. A record that changes during the run may come in this run, in the next
 * one, or in both; none is left out. Deleted records do not come: subscribe to their events, or compare with the whole list.
 */
export class Changes<Item> implements AsyncIterable<Item> {
  readonly #list: (query: { limit: number }) => Listing<Item>;
  #nextSince: string | undefined;

  /** @param list reads the records that changed since the instant */
  constructor(list: (query: { limit: number }) => Listing<Item>) {
    this.#list = list;
  }

  /**
   * The instant for the next run. Keep it once every record of this run is taken care of.
   * @throws {MailkeelError} before the iteration has ended: a run that was broken off must be made again
   */
  get nextSince(): string {
    if (this.#nextSince === undefined)
      throw new MailkeelError("The run has not ended: iterate over all changes first.");
    return this.#nextSince;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    this.#nextSince = undefined;
    const listing = this.#list({ limit: LARGEST_PAGE });
    // Of the first page: a record that changes after it may be missing from this run.
    const { syncedThrough } = (await listing).meta;
    yield* listing;
    this.#nextSince = syncedThrough;
  }
}
