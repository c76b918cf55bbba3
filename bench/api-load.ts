/** Ordinary requests against one URL, from a process of their own, so that its CPU is not the service's. */
import { setTimeout as delay } from "node:timers/promises";
import { Pool } from "undici";
import { answerEach, startModule } from "./own-process.ts";
import { quantile } from "./report.ts";

/**
 * The requests of a run; `{n}` in the body and the Idempotency-Key is replaced by a text of its own that ends with the
 * request's number, from 0.
 */
export interface ApiLoad {
  /** Scheme, host and port. */
  origin: string;
  method: "GET" | "POST";
  path: string;
  /** Paths that are requested in turns instead of `path`. */
  paths?: string[];
  headers: Record<string, string>;
  body?: string;
  /** Connections, each with one request at a time. */
  clients: number;
  seconds: number;
  /** Ends after so many requests instead. */
  requests?: number;
  /** Begins so many requests a second at a steady pace instead of each after the one before. */
  perSecond?: number;
}

/** The measurements of a run. */
export interface LoadResult {
  /** Answered requests per second. */
  rate: number;
  p50: number;
  p99: number;
  /** Requests that were answered. */
  answered: number;
  /** Answers by status, without the expected 200, 201 and 302. */
  unexpected: Record<string, number>;
  /** Of a run that is limited by `requests`: when each was answered, in ms since the epoch, by its number. */
  answeredAt: number[];
}

/** A process that makes load. */
export interface LoadProcess {
  run(load: ApiLoad): Promise<LoadResult>;
  close(): void;
}

/** Starts the process that makes load. */
export function startApiLoad(): LoadProcess {
  const { ask, close } = startModule(import.meta.filename);
  return { run: ask, close };
}

/** How long a steady pace waits for the answers that it still lacks. */
const LATE_MS = 5_000;
const EXPECTED = new Set([200, 201, 302]);

async function run(load: ApiLoad): Promise<LoadResult> {
  const { origin, method, path, paths = [path], headers, body, clients, seconds, requests, perSecond } = load;
  const pool = new Pool(origin, { connections: clients, pipelining: 1 });
  const latencies: number[] = [];
  const unexpected: Record<string, number> = {};
  const answeredAt: number[] = [];
  let numbered = 0;
  const stem = `${process.pid}-${Date.now().toString(36)}`;
  const one = async (begunAt: number) => {
    const turn = numbered++;
    const n = `${stem}-${turn}`;
    const filled = Object.entries(headers).map(([name, value]) => [name, value.replace("{n}", n)]);
    const answer = await pool.request({
      method,
      path: paths[turn % paths.length] ?? path,
      headers: Object.fromEntries(filled),
      ...(body === undefined ? {} : { body: body.replace("{n}", n) }),
    });
    await answer.body.dump({ limit: 64 * 1024 * 1024 });
    latencies.push(performance.now() - begunAt);
    if (requests !== undefined) answeredAt[turn] = performance.timeOrigin + performance.now();
    if (!EXPECTED.has(answer.statusCode)) unexpected[answer.statusCode] = (unexpected[answer.statusCode] ?? 0) + 1;
  };
  const startedAt = performance.now();
  const endsAt = startedAt + seconds * 1_000;
  if (perSecond === undefined) {
    const isDue = () => (requests === undefined ? performance.now() < endsAt : numbered < requests);
    const lane = async () => {
      while (isDue()) await one(performance.now());
    };
    await Promise.all(Array.from({ length: clients }, lane));
  } else {
    await atPace(perSecond, startedAt, endsAt, one);
  }
  const rate = latencies.length / ((performance.now() - startedAt) / 1_000);
  await pool.destroy();
  latencies.sort((a, b) => a - b);
  return {
    rate,
    answered: latencies.length,
    p50: quantile(latencies, 0.5),
    p99: quantile(latencies, 0.99),
    unexpected,
    answeredAt,
  };
}

/** Latencies count from when a request was due, so that a stall shows in all requests that were due meanwhile. */
async function atPace(perSecond: number, startedAt: number, endsAt: number, one: (begunAt: number) => Promise<void>) {
  const pending = new Set<Promise<void>>();
  for (let n = 0; ; n++) {
    const dueAt = startedAt + (n * 1_000) / perSecond;
    if (dueAt >= endsAt) break;
    const early = dueAt - performance.now();
    if (early > 0) await delay(early);
    const request = one(dueAt).finally(() => pending.delete(request));
    pending.add(request);
  }
  await Promise.race([Promise.all(pending), delay(LATE_MS, undefined, { ref: false })]);
}

if (import.meta.main) answerEach(run);
