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
  /** Runs of each kind of request, each beside a run of the yardstick. */
  repeat: number;
  clients: number;
  /** Subscribers of the teams whose lists are read, one team each. */
  rows: readonly number[];
  only?: readonly string[];
}

/** The yardstick that a kind of request is compared with, and the least share of its rate that it must reach. */
type Bar = { yardstick: "read" | "insert"; least: number };

interface Kind extends Bar {
  name: string;
  load: Pick<ApiLoad, "method" | "path" | "headers" | "body">;
}

const ME: Bar = { yardstick: "read", least: 0.55 };
const PAGE: Bar = { yardstick: "read", least: 0.25 };
const CREATE: Bar = { yardstick: "insert", least: 0.25 };
/** Of requests at half the top rate. */
const MOST_P99_MS = 25;
const SORTS = ["updated_at", "created_at"];

/** Requests of one API client beside a bare Express route, in turns within one run. */
export function benchApi(options: ApiOptions): Promise<BenchReport> {
  return withStack(options, async () => {
    const { env, origin } = await stack();
    const bare = await startBareExpress(env.MIGRATION_DATABASE_URL ?? env.DATABASE_URL);
    const process = startApiLoad();
    const rows: Row[] = [];
    const problems: string[] = [];
    try {
      const wanted = (await kindsOf(options.rows)).filter(({ name }) => options.only?.includes(name) ?? true);
      for (const kind of wanted) {
        const measured = await measure(kind, { options, process, origin, bare: bare.origin });
        rows.push(measured.row);
        problems.push(...measured.problems);
      }
    } finally {
      process.close();
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

async function kindsOf(sizes: readonly number[]): Promise<Kind[]> {
  const team = await makeTeam();
  const headers = { "x-api-key": team.keys.live, "content-type": "application/json" };
  const create = {
    method: "POST",
    path: "/subscribers",
    body: '{"email":"{n}@example.com","first_name":"First"}',
  } as const;
  const kinds: Kind[] = [
    { name: "/me", ...ME, load: { method: "GET", path: "/me", headers: { "x-api-key": team.keys.live } } },
    { name: "create", ...CREATE, load: { ...create, headers } },
    { name: "create with a key", ...CREATE, load: { ...create, headers: { ...headers, "idempotency-key": "{n}" } } },
  ];
  for (const size of sizes) {
    const reader = await makeAudience({ recipients: size, connections: 1, smtp: { host: "127.0.0.1", port: 25 } });
    await spreadTimes(reader);
    for (const sort of SORTS) {
      for (const deep of size > 25 ? [false, true] : [false]) {
        const cursor = deep ? `&cursor=${encodeURIComponent(await deepCursor(reader, sort, size))}` : "";
        kinds.push({
          name: `page, ${sort}, ${size} rows${deep ? ", deep" : ""}`,
          ...PAGE,
          load: {
            method: "GET",
            path: `/subscribers?limit=25&sort=${sort}${cursor}`,
            headers: { "x-api-key": reader.keys.live },
          },
        });
      }
    }
  }
  return kinds;
}

/** Rows that were written by one statement have one time. */
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
  const { body } = await client.get("/subscribers", { query: { limit: 25, sort, cursor } });
  return body.meta.next_cursor;
}

interface Run {
  options: ApiOptions;
  process: LoadProcess;
  origin: string;
  bare: string;
}

async function measure({ name, load, yardstick, least }: Kind, { options, process, origin, bare }: Run) {
  const { clients, seconds } = options;
  const bareLoad: ApiLoad =
    yardstick === "read"
      ? { origin: bare, method: "GET", path: "/", headers: {}, clients, seconds }
      : {
          origin: bare,
          method: "POST",
          path: "/",
          headers: { "content-type": "application/json" },
          body: '{"email":"{n}@example.com","name":"First"}',
          clients,
          seconds,
        };
  const own: ApiLoad = { ...load, path: `/api/v2${load.path}`, origin, clients, seconds };
  const cpu = () => usage({ api: pidOf("api") })["api"]?.cpuSeconds ?? 0;
  // The first requests compile the code.
  for (const warmed of [bareLoad, own]) await process.run({ ...warmed, seconds: Math.min(seconds, 2) });
  const runs: { yard: LoadResult; top: LoadResult; cpuMs: number; ratio: number }[] = [];
  for (let i = 0; i < options.repeat; i++) {
    const yard = await process.run(bareLoad);
    const before = cpu();
    const top = await process.run(own);
    runs.push({ yard, top, cpuMs: ((cpu() - before) * 1_000) / (top.rate * seconds), ratio: top.rate / yard.rate });
  }
  const middle = (of: (run: (typeof runs)[number]) => number) => median(runs.map(of));
  const rate = middle(({ top }) => top.rate);
  const half = await process.run({ ...own, perSecond: rate / 2 });
  const ratio = middle((run) => run.ratio);
  const unexpected = runs.flatMap(({ top }) => Object.keys(top.unexpected));
  const row: Row = {
    request: name,
    "per second": round(rate),
    "of bare": round(ratio, 2),
    least,
    "bare per second": round(middle(({ yard }) => yard.rate)),
    "p50 ms": round(
      middle(({ top }) => top.p50),
      1,
    ),
    "p99 ms": round(
      middle(({ top }) => top.p99),
      1,
    ),
    "p99 ms at half the rate": round(half.p99, 1),
    "API CPU ms": round(
      middle(({ cpuMs }) => cpuMs),
      2,
    ),
  };
  const problems = [
    ...(ratio < least ? [`${name}: ${round(ratio, 2)} of bare Express, must be ${least}`] : []),
    ...(half.p99 > MOST_P99_MS ? [`${name}: p99 ${round(half.p99, 1)} ms at half the top rate`] : []),
    ...(unexpected.length > 0 ? [`${name}: answers ${[...new Set(unexpected)].join(", ")}`] : []),
  ];
  return { row, problems };
}
