import { MailkeelError } from "./errors.ts";
import type { Page } from "./transport.ts";

/** As many as the service gives at most. */
const LARGEST_PAGE = 100;

interface PageQuery {
  cursor?: string | undefined;
  limit?: number | undefined;
}

/** The first page of a list when it is awaited, and every record of the list when it is iterated over. */
export type Listing<Item> = Promise<Page<Item>> & AsyncIterable<Item>;

/**
 * Asks for further pages as their records are taken. Records that are added or deleted meanwhile make none come twice or be
 * left out.
 * @throws {MailkeelError} at each page; `cursor_invalid` after an update of the service: begin again
 */
export function listingOf<Item, Query extends PageQuery>(
  readPage: (query: Query) => Promise<Page<Item>>,
  query: Query,
): Listing<Item> {
  const first = readPage(query);
  // An iteration that begins later throws it; until then it would end the process as an unhandled rejection.
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
 * The records that changed since an instant. One that changes during the run may come in this run, in the next one, or in
 * both. Deleted records do not come: subscribe to their events.
 */
export class Changes<Item> implements AsyncIterable<Item> {
  readonly #list: (query: { limit: number }) => Listing<Item>;
  #nextSince: string | undefined;

  constructor(list: (query: { limit: number }) => Listing<Item>) {
    this.#list = list;
  }

  /**
   * For the next run: keep it once every record of this run is taken care of. @throws {MailkeelError} before the run has
   * ended
   */
  get nextSince(): string {
    if (this.#nextSince === undefined)
      throw new MailkeelError("The run has not ended: iterate over all changes first.");
    return this.#nextSince;
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, undefined> {
    this.#nextSince = undefined;
    const listing = this.#list({ limit: LARGEST_PAGE });
    // Of the first page: a record that changes after it may be missing.
    const { syncedThrough } = (await listing).meta;
    yield* listing;
    this.#nextSince = syncedThrough;
  }
}
