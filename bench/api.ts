import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { api } from "../test/support/api.ts";
import { makeTeam, type TestTeam } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidOf } from "../test/support/processes.ts";
import { stack } from "../test/support/stack.ts";
import { type ApiLoad, type LoadProcess, type LoadResult, startApiLoad } from "./api-load.ts";
import { makeAudience } from "./audience.ts";
import { startBareExpress } from "./bare-express.ts";
import { usage } from "./processes.ts";
import { type BenchReport, median, type Row, round } from "./report.ts";

export interface ApiOptions extends StackChoice {
  /** How long one run lasts. */
  seconds: number;
  /** Runs of each kind of request, each beside a run of its baseline. */
  repeat: number;
  clients: number;
  /** Subscribers of the teams whose lists are read, one team each. */
  rows: readonly number[];
  only?: readonly string[];
}

/** The query of the bare Express route that a request is compared with, and the least share of its rate to reach. */
type Target = { baseline: "read" | "insert"; leastRatio: number };

/** A kind of request that is measured. */
interface MeasuredCase extends Target {
  name: string;
  load: Pick<ApiLoad, "method" | "path" | "headers" | "body">;
}

const ME: Target = { baseline: "read", leastRatio: 0.4 };
const PAGE: Target = { baseline: "read", leastRatio: 0.12 };
const CREATE: Target = { baseline: "insert", leastRatio: 0.2 };
/** Largest p99 of requests at half the top rate. */
const MOST_P99_MS = 50;
const SORTS = ["updated_at", "created_at"];
const LIMIT = 25;
/** Of the stack, whose CPU time is measured. */
const PROCESSES = ["api", "postgres"] as const;

/** Requests of one API client beside a bare Express route, in turns within one run. */
export function benchApi(options: ApiOptions): Promise<BenchReport> {
  return withStack(options, async () => {
    const { env, api: apiUrl } = await stack();
    const bare = await startBareExpress(env.MIGRATION_DATABASE_URL ?? env.DATABASE_URL);
    const loader = startApiLoad();
    const rows: Row[] = [];
    const problems: string[] = [];
    try {
      const wanted = (await makeCases(options.rows)).filter(({ name }) => options.only?.includes(name) ?? true);
      for (const measuredCase of wanted) {
        const measured = await measure(measuredCase, { options, loader, apiUrl, bare: bare.origin });
        rows.push(measured.row);
        problems.push(...measured.problems);
      }
    } finally {
      loader.close();
      bare.close();
    }
    const { seconds, repeat, clients } = options;
    return {
      bench: "api",
      options: { seconds, repeat, clients, rows: options.rows.join(",") },
      tables: { "Requests of one key, and of a bare Express route that makes one query": rows },
      problems,
    };
  });
}

/** @param sizes subscribers of the teams whose lists are read */
async function makeCases(sizes: readonly number[]): Promise<MeasuredCase[]> {
  const team = await makeTeam();
  const headers = { "x-api-key": team.keys.live, "content-type": "application/json" };
  const create = {
    method: "POST",
    path: "/subscribers",
    body: '{"email":"{n}@example.com","first_name":"First"}',
  } as const;
  const cases: MeasuredCase[] = [
    { name: "/me", ...ME, load: { method: "GET", path: "/me", headers: { "x-api-key": team.keys.live } } },
    { name: "create", ...CREATE, load: { ...create, headers } },
    { name: "create with a key", ...CREATE, load: { ...create, headers: { ...headers, "idempotency-key": "{n}" } } },
  ];
  for (const size of sizes) {
    const reader = await makeAudience({ recipients: size, connections: 1, smtp: { host: "127.0.0.1", port: 25 } });
    await spreadTimes(reader);
    for (const sort of SORTS) {
      for (const deep of size > LIMIT ? [false, true] : [false]) {
        const cursor = deep ? `&cursor=${encodeURIComponent(await deepCursor(reader, sort, size))}` : "";
        cases.push({
          // A list of 10 rows has pages of 10 records, which cost less than those of 25.
          name: `page of ${Math.min(size, LIMIT)}, ${sort}, ${size} rows${deep ? ", deep" : ""}`,
          ...PAGE,
          load: {
            method: "GET",
            path: `/subscribers?limit=${LIMIT}&sort=${sort}${cursor}`,
            headers: { "x-api-key": reader.keys.live },
          },
        });
      }
    }
  }
  return cases;
}

/** Gives the rows different times: one statement has written them, with one time. */
async function spreadTimes({ em, team }: TestTeam): Promise<void> {
  await sql`update subscribers s set created_at = t.at, updated_at = t.at
    from (select id, now() - make_interval(secs => row_number() over (order by id)) as at from subscribers
      where team_id = ${team.id}) t
    where s.id = t.id`.execute(kysely(em));
  await sql`vacuum analyze subscribers`.execute(kysely(em));
}

/** A cursor in the middle of a list, found by reading every page up to there. */
async function deepCursor({ keys }: TestTeam, sort: string, size: number): Promise<string> {
  const client = api(keys.live);
  let cursor = "";
  for (let read = 0; read < size / 2; ) {
    const { body } = await client.get("/subscribers", { query: { limit: 100, sort, ...(cursor ? { cursor } : {}) } });
    cursor = body.meta.next_cursor;
    read += body.data.length;
  }
  const { body } = await client.get("/subscribers", { query: { limit: LIMIT, sort, cursor } });
  return body.meta.next_cursor;
}

/** The parts that every measurement needs. */
interface Bench {
  options: ApiOptions;
  loader: LoadProcess;
  /** The base URL of the API. */
  apiUrl: string;
  /** The origin of the bare Express route. */
  bare: string;
}

/** A run of the API beside one of its baseline. */
interface Pair {
  baseline: LoadResult;
  measured: LoadResult;
  /** CPU seconds per 1,000 requests. */
  cpu: Record<(typeof PROCESSES)[number], number>;
  /** The API's rate over that of the baseline. */
  ratio: number;
}

/** The requests of the bare Express route. */
function baselineLoad({ baseline }: Target, { bare, options: { clients, seconds } }: Bench): ApiLoad {
  const load = { origin: bare, path: "/", clients, seconds };
  if (baseline === "read") return { ...load, method: "GET", headers: {} };
  const headers = { "content-type": "application/json" };
  return { ...load, method: "POST", headers, body: '{"email":"{n}@example.com","name":"First"}' };
}

/** The requests of the API. */
function measuredLoad({ load }: MeasuredCase, { apiUrl, options: { clients, seconds } }: Bench): ApiLoad {
  const { origin, pathname } = new URL(apiUrl);
  return { ...load, path: `${pathname}${load.path}`, origin, clients, seconds };
}

/** Runs the baseline and the API in turns. */
async function runPairs(baseline: ApiLoad, measured: ApiLoad, { options, loader }: Bench): Promise<Pair[]> {
  // The first requests compile the code.
  for (const load of [baseline, measured]) await loader.run({ ...load, seconds: Math.min(load.seconds, 2) });
  const pids = Object.fromEntries(PROCESSES.map((name) => [name, pidOf(name)]));
  const pairs: Pair[] = [];
  for (let i = 0; i < options.repeat; i++) {
    const bare = await loader.run(baseline);
    const before = usage(pids);
    const own = await loader.run(measured);
    const after = usage(pids);
    const cpuOf = (name: string) =>
      (((after[name]?.cpuSeconds ?? 0) - (before[name]?.cpuSeconds ?? 0)) * 1_000) / own.answered;
    const cpu = { api: cpuOf("api"), postgres: cpuOf("postgres") };
    pairs.push({ baseline: bare, measured: own, cpu, ratio: own.rate / bare.rate });
  }
  return pairs;
}

const medianOf = (pairs: readonly Pair[], read: (pair: Pair) => number): number => median(pairs.map(read));
const rateOf = (pairs: readonly Pair[]): number => medianOf(pairs, ({ measured }) => measured.rate);
const ratioOf = (pairs: readonly Pair[]): number => medianOf(pairs, ({ ratio }) => ratio);

const rowOf = ({ name, leastRatio }: MeasuredCase, pairs: readonly Pair[], halfP99: number): Row => ({
  request: name,
  "per second": round(rateOf(pairs)),
  "of bare": round(ratioOf(pairs), 2),
  least: leastRatio,
  "bare per second": round(medianOf(pairs, ({ baseline }) => baseline.rate)),
  "p50 ms": round(
    medianOf(pairs, ({ measured }) => measured.p50),
    1,
  ),
  "p99 ms": round(
    medianOf(pairs, ({ measured }) => measured.p99),
    1,
  ),
  "p99 ms at half the rate": round(halfP99, 1),
  "API CPU s per 1,000": round(
    medianOf(pairs, ({ cpu }) => cpu.api),
    2,
  ),
  "Postgres CPU s per 1,000": round(
    medianOf(pairs, ({ cpu }) => cpu.postgres),
    2,
  ),
});

function problemsOf({ name, leastRatio }: MeasuredCase, pairs: readonly Pair[], halfP99: number): string[] {
  const ratio = ratioOf(pairs);
  const unexpectedOf = (of: "baseline" | "measured") => [
    ...new Set(pairs.flatMap((pair) => Object.keys(pair[of].unexpected))),
  ];
  const unexpected = unexpectedOf("measured");
  const unexpectedOfBare = unexpectedOf("baseline");
  return [
    ...(ratio < leastRatio ? [`${name}: ${round(ratio, 2)} of bare Express, must be ${leastRatio}`] : []),
    ...(halfP99 > MOST_P99_MS ? [`${name}: p99 ${round(halfP99, 1)} ms at half the top rate`] : []),
    ...(unexpected.length > 0 ? [`${name}: answers ${unexpected.join(", ")}`] : []),
    ...(unexpectedOfBare.length > 0 ? [`${name}: bare Express answers ${unexpectedOfBare.join(", ")}`] : []),
  ];
}

/** Measures one kind of request: at its top rate, and at half of that. */
async function measure(measuredCase: MeasuredCase, bench: Bench): Promise<{ row: Row; problems: string[] }> {
  const own = measuredLoad(measuredCase, bench);
  const pairs = await runPairs(baselineLoad(measuredCase, bench), own, bench);
  const halves: LoadResult[] = [];
  for (const _ of pairs) halves.push(await bench.loader.run({ ...own, perSecond: rateOf(pairs) / 2 }));
  const halfP99 = median(halves.map(({ p99 }) => p99));
  return { row: rowOf(measuredCase, pairs, halfP99), problems: problemsOf(measuredCase, pairs, halfP99) };
}
