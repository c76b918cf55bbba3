import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import { atMostOnceAMinute } from "../../config/log.ts";
import type { Progress } from "../../config/progress.ts";
import { withoutSpan } from "../../config/tracing.ts";
import { WindowCounts } from "../../config/window-counts.ts";
import { refusesValues } from "../../db/unreachable.ts";
import type { Hit, RecordedHits } from "../../domain/tracking/record.ts";

/** How often hits are written. A process that is killed loses those that came since. */
const WRITE_EVERY_MS = 1_000;
const BATCH_HITS = 2_000;
/** Hits that wait at most: those of a minute without Postgres, at 2,000 a second. */
const MAX_WAITING = 120_000;
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
  record(hits: readonly Hit[]): Promise<RecordedHits[]>;
  metrics: HitMetrics;
  progress: Progress;
  log: Logger;
}

/**
 * Keeps hits on pixels and links in memory from the request until Postgres has them. Those of a statement that was committed
 * without an answer count twice.
 */
export class HitBuffer {
  readonly #options: BufferOptions;
  readonly #rarely = atMostOnceAMinute();
  readonly #perMail = new WindowCounts({ windowMs: 60_000, maxKeys: MAX_MAILS });
  readonly #stopping = new AbortController();
  readonly #waiting: Hit[] = [];
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
    if (this.#waiting.length >= MAX_WAITING) {
      this.#drop(1, "too many wait to be recorded");
      return;
    }
    metrics.waiting(this.#waiting.push(hit));
    this.#writing ??= withoutSpan(() => this.#writeAll());
  }

  /** Records what it holds, for as long as Postgres takes hits. */
  async close(): Promise<void> {
    this.#stopping.abort();
    for (let before = Infinity; this.#writing && this.#waiting.length < before; ) {
      before = this.#waiting.length;
      await Promise.race([this.#writing, delay(LAST_TRY_MS, undefined, { ref: false })]);
    }
    this.#hasEnded = true;
    const left = this.#waiting.length;
    if (left > 0) this.#drop(left, "the process ends before Postgres takes them");
  }

  async #writeAll(): Promise<void> {
    const { record, metrics, progress, log } = this.#options;
    const watched = progress.watch("tracking", STALLED_MS);
    const { signal } = this.#stopping;
    while (this.#waiting.length > 0 && !this.#hasEnded) {
      const hits = this.#waiting.slice(0, BATCH_HITS);
      let isAway = false;
      try {
        metrics.recorded(await record(hits));
      } catch (error) {
        this.#rarely("record", () => log.warn({ err: error }, "hits could not be recorded"));
        isAway = !refusesValues(error);
        if (!isAway) this.#drop(hits.length, "Postgres refuses them");
      }
      if (!isAway) {
        this.#waiting.splice(0, hits.length);
        metrics.waiting(this.#waiting.length);
        watched.moved();
      }
      if (signal.aborted) await delay(isAway ? LAST_TRY_EVERY_MS : 0);
      else if (isAway || hits.length < BATCH_HITS) {
        await delay(WRITE_EVERY_MS, undefined, { signal, ref: false }).catch(() => undefined);
      }
    }
    watched.end();
    this.#writing = undefined;
  }

  #drop(hits: number, why: string): void {
    this.#options.metrics.dropped(hits);
    this.#rarely(why, () => this.#options.log.error({ hits }, `opens and clicks are dropped: ${why}`));
  }
}
