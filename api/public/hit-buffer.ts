import { randomUUID } from "node:crypto";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import { atMostOnceAMinute } from "../../config/log.ts";
import type { Progress, Watched } from "../../config/progress.ts";
import { WindowCounts } from "../../config/window-counts.ts";
import { refusesValues } from "../../db/unreachable.ts";
import type { Hit, RecordedHits } from "../../domain/tracking/record.ts";

/** How often hits are written. A process that is killed loses those that came since. */
const WRITE_EVERY_MS = 1_000;
const BATCH_HITS = 2_000;
/** Hits that wait at most: those of a minute without Postgres, at 2,000 a second. */
const MAX_WAITING = 120_000;
/** Characters of their URLs at most. */
const MAX_WAITING_CHARS = 64 * 1024 * 1024;
/** Tries to record a batch that Postgres refuses: each further one would end alike. */
const MAX_REFUSALS = 3;
/** Hits of one kind on one mail that are recorded in a minute: no reader makes more, and a loop of requests would fill the memory. */
const MAX_PER_MINUTE = 30;
/** Mails that are counted in a minute. */
const MAX_MAILS = 100_000;
/** How long hits may wait without any being recorded. */
const STALLED_MS = 60_000;
/** How long a process that ends waits for the record of a batch. */
const LAST_TRY_MS = 3_000;
/** How often it tries meanwhile. */
const LAST_TRY_EVERY_MS = 100;

export interface HitMetrics {
  recorded(hits: readonly RecordedHits[]): void;
  dropped(hits: number): void;
  /** Called for a hit that is not recorded, because its mail had too many in a minute. */
  ignored(): void;
  waiting(hits: number): void;
}

interface BufferOptions {
  record(batchId: string, hits: readonly Hit[]): Promise<RecordedHits[]>;
  metrics: HitMetrics;
  progress: Progress;
  log: Logger;
}

/** Hits that are recorded together, once. */
interface Batch {
  id: string;
  hits: Hit[];
  /** Its record was tried: it takes no more hits, because that one may have committed without an answer. */
  isClosed: boolean;
  refusals: number;
}

const charsOf = ({ url }: Hit): number => url?.length ?? 0;

/** Keeps hits on pixels and links in memory from the request until Postgres has them. */
export class HitBuffer {
  readonly #options: BufferOptions;
  readonly #rarely = atMostOnceAMinute();
  readonly #perMail = new WindowCounts({ windowMs: 60_000, maxKeys: MAX_MAILS });
  readonly #stopping = new AbortController();
  #batches: Batch[] = [];
  #waiting = 0;
  /** Characters of their URLs. */
  #chars = 0;
  /** The process waits for no record any more. */
  #hasEnded = false;
  /** Settles when no hit is left, or the process ends. */
  #writing: Promise<void> | undefined;

  constructor(options: BufferOptions) {
    this.#options = options;
  }

  add(hit: Hit): void {
    const { metrics } = this.#options;
    if (this.#perMail.add(`${hit.kind} ${hit.sendId} ${hit.seq}`) > MAX_PER_MINUTE) {
      metrics.ignored();
      return;
    }
    if (this.#waiting >= MAX_WAITING || this.#chars + charsOf(hit) > MAX_WAITING_CHARS) {
      this.#drop(1, "too many wait to be recorded");
      return;
    }
    let batch = this.#batches.at(-1);
    if (!batch || batch.isClosed || batch.hits.length >= BATCH_HITS) {
      batch = { id: randomUUID(), hits: [], isClosed: false, refusals: 0 };
      this.#batches.push(batch);
    }
    batch.hits.push(hit);
    this.#chars += charsOf(hit);
    metrics.waiting(++this.#waiting);
    this.#writing ??= this.#writeAll();
  }

  /** Records what it holds, for as long as Postgres takes batches. */
  async close(): Promise<void> {
    this.#stopping.abort();
    for (let before = Infinity; this.#writing && this.#waiting < before; ) {
      before = this.#waiting;
      await Promise.race([this.#writing, delay(LAST_TRY_MS, undefined, { ref: false })]);
    }
    this.#hasEnded = true;
    if (this.#waiting > 0) this.#drop(this.#waiting, "the process ends before Postgres takes them");
  }

  async #writeAll(): Promise<void> {
    const watched = this.#options.progress.watch("tracking", STALLED_MS);
    const { signal } = this.#stopping;
    while (this.#waiting > 0 && !this.#hasEnded) {
      const startedAt = performance.now();
      await this.#writeBatches(watched);
      if (signal.aborted) {
        if (this.#waiting > 0) await delay(LAST_TRY_EVERY_MS);
        continue;
      }
      const restMs = WRITE_EVERY_MS - (performance.now() - startedAt);
      await delay(Math.max(restMs, 0), undefined, { signal, ref: false }).catch(() => undefined);
    }
    watched.end();
    this.#writing = undefined;
  }

  /** Records the batches that are there: until Postgres cannot be reached, or each of them in a process that ends. */
  async #writeBatches(watched: Watched): Promise<void> {
    const { record, metrics, log } = this.#options;
    for (const batch of [...this.#batches]) {
      if (this.#hasEnded) return;
      batch.isClosed = true;
      try {
        metrics.recorded(await record(batch.id, batch.hits));
      } catch (error) {
        this.#rarely("record", () => log.warn({ err: error }, "hits could not be recorded"));
        const isAway = !refusesValues(error);
        if (isAway && !this.#stopping.signal.aborted) {
          // To the end: should it be the batch that ends connections, the others do not wait for it.
          this.#batches = [...this.#batches.filter((other) => other !== batch), batch];
          return;
        }
        if (isAway || ++batch.refusals < MAX_REFUSALS) continue;
        this.#drop(batch.hits.length, "Postgres refuses them");
      }
      this.#remove(batch);
      watched.moved();
    }
  }

  #remove(batch: Batch): void {
    this.#batches = this.#batches.filter((other) => other !== batch);
    this.#waiting -= batch.hits.length;
    for (const hit of batch.hits) this.#chars -= charsOf(hit);
    this.#options.metrics.waiting(this.#waiting);
  }

  #drop(hits: number, why: string): void {
    this.#options.metrics.dropped(hits);
    this.#rarely(why, () => this.#options.log.error({ hits }, `opens and clicks are dropped: ${why}`));
  }
}
