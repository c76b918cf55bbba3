import { randomUUID } from "node:crypto";
import { type FileHandle, mkdir, open, readdir, readFile, rm, rmdir, stat, utimes } from "node:fs/promises";
import { basename, dirname } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import type { Logger } from "pino";
import { z } from "zod";
import { atMostOnceAMinute } from "../../config/log.ts";
import type { Progress, Watched } from "../../config/progress.ts";
import { WindowCounts } from "../../config/window-counts.ts";
import { AUTOMATIC_CAUSES, ENGAGEMENT_KINDS } from "../../db/entities/engagement.ts";
import type { Hit, RecordedHits } from "../../domain/tracking/record.ts";

/** How long hits are gathered before they are recorded together. */
const GATHER_MS = 500;
/** Hits from which a batch is recorded without gathering more; it has less than twice as many. */
const BATCH_HITS = 2_000;
/** Hits that are kept in memory; those beyond are read back from their files, or dropped where they are in none. */
const HITS_IN_MEMORY = 50_000;
/** Hits of one kind on one mail that are recorded in a minute: no reader makes more, and a loop of requests would fill the disk. */
const MAX_PER_MINUTE = 30;
/** Mails that are counted in a minute. */
const MAX_MAILS = 100_000;
/** How long a request waits for its hit to be in a file: longer, and the disk does not answer. */
const SAVE_WAIT_MS = 50;
/** Wait before hits that could not be recorded are tried again. */
const RETRY_MS = 1_000;
/** How often a process shows that its folder is in use, and looks for folders of processes that have ended. */
const LOOK_MS = 2_000;
/** Age of that sign from which a folder's process is presumed dead. If it lives after all, no hit counts twice. */
const STALE_MS = 10_000;
/** How long hits may wait without any being recorded. */
const STALLED_MS = 60_000;
/** How long a process that ends tries to record its hits. */
const LAST_TRY_MS = 3_000;
const SUFFIX = ".hits";

/** The figures that a spool reports. */
export interface HitMetrics {
  recorded(hits: readonly RecordedHits[]): void;
  dropped(hits: number): void;
  /** Called for a hit that is not recorded, because its mail had too many in a minute. */
  ignored(): void;
  /** Hits and bytes of files that wait to be recorded. */
  waiting(waiting: { hits: number; bytes: number }): void;
}

interface SpoolOptions {
  /** Folder in which each process has one of its own; without it, hits are kept in memory alone. */
  folder: string | undefined;
  /** Most bytes of the files of this process; more hits are dropped. */
  maxBytes: number;
  record(batchId: string, hits: readonly Hit[]): Promise<RecordedHits[]>;
  metrics: HitMetrics;
  progress: Progress;
  log: Logger;
}

/** Hits that are recorded together, once. */
interface Batch {
  id: string;
  /** Undefined where they are in the file alone. */
  hits: Hit[] | undefined;
  count: number;
  /** Undefined where they are in memory alone. */
  path: string | undefined;
  /** All of them are in the file. */
  isSaved: boolean;
  bytes: number;
}

/** A batch that still grows. */
interface OpenBatch extends Batch {
  hits: Hit[];
  file: FileHandle | undefined;
}

const savedHit = z.tuple([
  z.enum(ENGAGEMENT_KINDS),
  z.string(),
  z.int32(),
  z.int(),
  z.enum(AUTOMATIC_CAUSES).nullable(),
  z.string().nullable(),
]);

const toLine = ({ kind, sendId, seq, at, cause, url }: Hit): string =>
  `${JSON.stringify([kind, sendId, seq, at, cause, url])}\n`;

/** The hit of a line; none for one that a failing disk has changed. */
function toHits(line: string): Hit[] {
  try {
    const [kind, sendId, seq, at, cause, url] = savedHit.parse(JSON.parse(line));
    return [{ kind, sendId, seq, at, cause, url }];
  } catch {
    return [];
  }
}

const isMissing = (error: unknown): boolean => error instanceof Error && "code" in error && error.code === "ENOENT";

/**
 * Keeps hits on pixels and links from the request until Postgres has them. A request is answered as soon as its hit stands in
 * a file of this process, which outlives it; another process finds the files of one that died.
 */
export class HitSpool {
  readonly #options: SpoolOptions;
  readonly #folder: string | undefined;
  readonly #rarely = atMostOnceAMinute();
  readonly #perMail = new WindowCounts({ windowMs: 60_000, maxKeys: MAX_MAILS });
  readonly #stopping = new AbortController();
  /** Hits of requests that wait, and a promise of when they are in a file. */
  #fresh: { hits: Hit[]; saved: PromiseWithResolvers<void> } | undefined;
  #open: OpenBatch | undefined;
  /** Oldest first. */
  #waiting: Batch[] = [];
  /** Writes to files and changes of the open batch, one after the other. */
  #writes: Promise<void> = Promise.resolve();
  #isSaving = false;
  readonly #finishing = new Set<Promise<void>>();
  #delivering: Promise<void> | undefined;
  #watching: Promise<void> | undefined;
  #hasFolder = false;
  #bytes = 0;
  #hits = 0;
  #hitsInMemory = 0;

  constructor(options: SpoolOptions) {
    this.#options = options;
    this.#folder = options.folder && `${options.folder}/${randomUUID()}`;
  }

  /** Looks for hits that processes left which have ended, now and from time to time. */
  start(): void {
    if (this.#options.folder !== undefined) this.#watching = this.#watch(this.#options.folder);
  }

  /** Takes a hit. Resolves when it is safe from the end of this process, as far as the disk allows; never rejects. */
  add(hit: Hit): Promise<void> {
    if (this.#perMail.add(`${hit.kind} ${hit.sendId} ${hit.seq}`) > MAX_PER_MINUTE) {
      this.#options.metrics.ignored();
      return Promise.resolve();
    }
    if (this.#hitsInMemory >= HITS_IN_MEMORY) this.#freeMemory();
    if (this.#hitsInMemory >= HITS_IN_MEMORY || this.#bytes >= this.#options.maxBytes) {
      this.#drop(1);
      return Promise.resolve();
    }
    this.#hits++;
    this.#hitsInMemory++;
    this.#fresh ??= { hits: [], saved: Promise.withResolvers() };
    this.#fresh.hits.push(hit);
    const { promise } = this.#fresh.saved;
    if (!this.#isSaving) {
      this.#isSaving = true;
      this.#write(() => this.#saveAll());
    }
    return promise;
  }

  /** Records what it holds, as far as Postgres takes it at once; the rest stays in files. */
  async close(): Promise<void> {
    this.#stopping.abort();
    await this.#watching;
    this.#write(() => this.#seal());
    await this.#writes;
    const delivered = Promise.resolve(this.#delivering).then(() => this.#deliver());
    await Promise.race([delivered, delay(LAST_TRY_MS, undefined, { ref: false })]);
    await Promise.all(this.#finishing);
    if (this.#folder !== undefined && this.#hasFolder) await rmdir(this.#folder).catch(() => undefined);
  }

  #write(work: () => Promise<void> | void): void {
    this.#writes = this.#writes.then(work);
  }

  /** Saves fresh hits until there are none: those that come during a write are written together. */
  async #saveAll(): Promise<void> {
    for (let fresh = this.#fresh; fresh; fresh = this.#fresh) {
      this.#fresh = undefined;
      const late = setTimeout(fresh.saved.resolve, SAVE_WAIT_MS);
      for (let i = 0; i < fresh.hits.length; i += BATCH_HITS) await this.#save(fresh.hits.slice(i, i + BATCH_HITS));
      clearTimeout(late);
      fresh.saved.resolve();
    }
    this.#isSaving = false;
  }

  async #save(hits: readonly Hit[]): Promise<void> {
    this.#open ??= await this.#openBatch();
    const batch = this.#open;
    batch.hits.push(...hits);
    batch.count += hits.length;
    if (batch.file) {
      const text = hits.map(toLine).join("");
      try {
        await batch.file.appendFile(text);
        batch.bytes += text.length;
        this.#bytes += text.length;
      } catch (error) {
        this.#warn("a file", error);
        batch.isSaved = false;
        // A part of the text may be in it: nothing more is written behind that.
        this.#seal();
      }
    }
    if (batch.count >= BATCH_HITS) this.#seal();
    this.#report();
  }

  async #openBatch(): Promise<OpenBatch> {
    const id = randomUUID();
    const batch: OpenBatch = { id, hits: [], count: 0, path: undefined, isSaved: false, bytes: 0, file: undefined };
    setTimeout(() => this.#write(() => this.#seal(batch)), GATHER_MS).unref();
    if (this.#folder === undefined) return batch;
    try {
      await mkdir(this.#folder, { recursive: true, mode: 0o700 });
      this.#hasFolder = true;
      const path = `${this.#folder}/${batch.id}${SUFFIX}`;
      return Object.assign(batch, { path, file: await open(path, "a", 0o600), isSaved: true });
    } catch (error) {
      this.#warn("a folder", error);
      return batch;
    }
  }

  /** Ends the open batch, if it is `only`, and has it recorded. */
  #seal(only = this.#open): void {
    const batch = this.#open;
    if (!batch || batch !== only) return;
    this.#open = undefined;
    if (batch.file) this.#finish(batch.file);
    batch.file = undefined;
    this.#waiting.push(batch);
    if (!this.#stopping.signal.aborted) this.#deliverSoon();
  }

  /** Has the disk keep a file through a loss of power. The hits that come meanwhile do not wait for it. */
  #finish(file: FileHandle): void {
    const finished = file
      .datasync()
      .finally(() => file.close())
      .catch((error: unknown) => this.#warn("a file", error))
      .finally(() => this.#finishing.delete(finished));
    this.#finishing.add(finished);
  }

  #deliverSoon(): void {
    this.#delivering ??= this.#deliverAll().finally(() => {
      this.#delivering = undefined;
      // One that was added while this ended.
      if (this.#waiting.length > 0 && !this.#stopping.signal.aborted) this.#deliverSoon();
    });
  }

  async #deliverAll(): Promise<void> {
    const watched = this.#options.progress.watch("tracking", STALLED_MS);
    while (!(await this.#deliver(watched)) && !this.#stopping.signal.aborted) {
      await delay(RETRY_MS, undefined, { signal: this.#stopping.signal, ref: false }).catch(() => undefined);
    }
    watched.end();
  }

  /** Records the batches that wait, until one fails. @returns whether none is left */
  async #deliver(watched?: Watched): Promise<boolean> {
    for (let [batch] = this.#waiting; batch; [batch] = this.#waiting) {
      try {
        const hits = batch.hits ?? (await this.#read(batch));
        if (hits.length > 0) this.#options.metrics.recorded(await this.#options.record(batch.id, hits));
        await this.#remove(batch);
        watched?.moved();
      } catch (error) {
        this.#rarely("record", () => this.#options.log.warn({ err: error }, "hits could not be recorded"));
        // To the end: should it be the batch that fails, the others do not wait for it.
        this.#waiting.push(...this.#waiting.splice(0, 1));
        return false;
      }
    }
    return true;
  }

  /** @returns no hits where another process has recorded them and removed the file */
  async #read({ path }: Batch): Promise<Hit[]> {
    if (path === undefined) return [];
    try {
      const text = await readFile(path, "utf8");
      // Whole lines: of the last one, a crash may have left a part.
      return text.split("\n").slice(0, -1).flatMap(toHits);
    } catch (error) {
      if (isMissing(error)) return [];
      throw error;
    }
  }

  async #remove(batch: Batch): Promise<void> {
    this.#waiting = this.#waiting.filter((other) => other !== batch);
    this.#hits -= batch.count;
    if (batch.hits) this.#hitsInMemory -= batch.count;
    this.#bytes -= batch.bytes;
    this.#report();
    if (batch.path === undefined) return;
    await rm(batch.path, { force: true });
    // A folder that another process left, once it is empty.
    if (dirname(batch.path) !== this.#folder) await rmdir(dirname(batch.path)).catch(() => undefined);
  }

  /** Leaves the hits that wait to their files. */
  #freeMemory(): void {
    for (const batch of this.#waiting) {
      if (!batch.hits || !batch.isSaved) continue;
      batch.hits = undefined;
      this.#hitsInMemory -= batch.count;
    }
  }

  async #watch(folder: string): Promise<void> {
    while (!this.#stopping.signal.aborted) {
      try {
        const now = new Date();
        if (this.#folder !== undefined && this.#hasFolder) await utimes(this.#folder, now, now);
        for (const left of await readdir(folder, { withFileTypes: true })) {
          if (left.isDirectory()) await this.#adopt(`${folder}/${left.name}`);
        }
      } catch (error) {
        if (!isMissing(error)) this.#warn("a folder", error);
      }
      await delay(LOOK_MS, undefined, { signal: this.#stopping.signal, ref: false }).catch(() => undefined);
    }
  }

  /** Takes over the files of a process that is presumed dead. */
  async #adopt(folder: string): Promise<void> {
    if (folder === this.#folder || Date.now() - (await stat(folder)).mtimeMs < STALE_MS) return;
    const known = new Set(this.#waiting.map(({ id }) => id));
    const files = (await readdir(folder)).filter((name) => name.endsWith(SUFFIX));
    if (files.length === 0) return void (await rmdir(folder).catch(() => undefined));
    for (const name of files) {
      const id = basename(name, SUFFIX);
      if (known.has(id)) continue;
      const path = `${folder}/${name}`;
      const { size } = await stat(path);
      this.#bytes += size;
      // They are not counted before they are read.
      this.#waiting.push({ id, hits: undefined, count: 0, path, isSaved: true, bytes: size });
    }
    this.#report();
    this.#deliverSoon();
  }

  #drop(hits: number): void {
    this.#options.metrics.dropped(hits);
    this.#rarely("drop", () => this.#options.log.error("hits are dropped: too many wait to be recorded"));
  }

  #report(): void {
    this.#options.metrics.waiting({ hits: this.#hits, bytes: this.#bytes });
  }

  #warn(what: string, err: unknown): void {
    this.#rarely(what, () => this.#options.log.warn({ err }, `hits are kept in memory: ${what} cannot be written`));
  }
}
