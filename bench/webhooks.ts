import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { claimPort } from "../config/ports.ts";
import { kysely } from "../db/orm.ts";
import { eventually } from "../test/support/eventually.ts";
import { makeTeam, type TestTeam, unique } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { kill, pidsOf } from "../test/support/processes.ts";
import { stack } from "../test/support/stack.ts";
import { emitSome, makeEndpoint } from "../test/support/webhooks.ts";
import { type LoadProcess, startApiLoad } from "./api-load.ts";
import { startBareExpress } from "./bare-express.ts";
import { type Usage, usage } from "./processes.ts";
import { type BenchReport, median, quantile, type Row, round } from "./report.ts";
import { startWebhookSink, type WebhookSink } from "./webhook-sink.ts";

export interface WebhooksOptions extends StackChoice {
  /** Which scenarios to run; all of them unless given. */
  only?: readonly string[];
  /** Events of a run to one endpoint. */
  events: number;
  /** How often each scenario is run. */
  repeat: number;
}

const IN_FLIGHT = 32;
const FAN_OUT = 20;
const POLL_MS = 50;
/** Pause between two changes that are made steadily, in ms. */
const STEADY_MS = 14;
/** How long one run may take. */
const GIVE_UP_MS = 30 * 60_000;
/** After this long without an arrival, missing events count as lost. */
const SILENT_MS = 60_000;
/** About 1 KB with the envelope around it. */
const PADDING = "x".repeat(800);

const PROCESSES = ["api", "webhooks", "postgres", "temporal"] as const;

interface Run {
  sink: WebhookSink;
  loader: LoadProcess;
  team: TestTeam;
  /** Paths of the endpoints. */
  paths: string[];
}

interface Scenario {
  endpoints: number;
  latencyMs: number;
  /** Of the endpoints, so many hang. */
  hanging?: number;
  /** How long such an endpoint takes, in ms; without it, it never answers. */
  hangMs?: number;
  events(options: WebhooksOptions): number;
  /**
   * Other teams with 20 endpoints each. `events` changes of each are in the outbox from the start, or are added `afterMs` after the first
   * change of the measured team. With `hang` their endpoints never answer.
   */
  others?: { teams: number; events: number; hang?: true; afterMs?: number };
  /** Makes the changes. @returns when each was committed, in ms since the epoch */
  feed(run: Run, events: number): Promise<number[]>;
  /** Kills the worker when half has arrived. */
  kill?: boolean;
  bars?: readonly Bar[];
}

/** A figure of a run to be compared with a bar. */
type BarFigure = "per second" | "p50 ms" | "p95 ms" | "last s" | "CPU s per 1,000" | "of an insert";

/** The least or the most that a figure should be, as the median of its runs. */
interface Bar {
  figure: BarFigure;
  least?: number;
  most?: number;
}

const now = () => performance.timeOrigin + performance.now();

/** How long the yardstick is run, in seconds: before each run through the API, and at first to compile its code. */
const YARDSTICK_SECONDS = 2;

/** Changes made by API clients, 32 at a time. */
async function throughApi({ team, loader }: Run, events: number): Promise<number[]> {
  const { origin, pathname } = new URL((await stack()).api);
  const { answeredAt, unexpected } = await loader.run({
    origin,
    method: "POST",
    path: `${pathname}/subscribers`,
    headers: { "x-api-key": team.keys.live, "content-type": "application/json" },
    body: JSON.stringify({
      email: "w{n}@example.com",
      first_name: "x".repeat(100),
      last_name: "y".repeat(100),
    }),
    clients: IN_FLIGHT,
    seconds: 0,
    requests: events,
  });
  const statuses = Object.keys(unexpected);
  if (statuses.length > 0) throw new Error(`POST /subscribers was answered with ${statuses.join(", ")}`);
  return answeredAt;
}

/** A bare Express route that inserts one row: what these processors make of a request that does the least. */
interface Yardstick {
  /** Inserts per second now, 32 in flight. */
  measure(): Promise<number>;
  close(): void;
}

async function openYardstick(loader: LoadProcess): Promise<Yardstick> {
  const { env } = await stack();
  const { origin, close } = await startBareExpress(env.MIGRATION_DATABASE_URL ?? env.DATABASE_URL);
  const measure = async () => {
    const { rate } = await loader.run({
      origin,
      method: "POST",
      path: "/",
      headers: { "content-type": "application/json" },
      body: '{"email":"{n}@example.com","name":"First"}',
      clients: IN_FLIGHT,
      seconds: YARDSTICK_SECONDS,
    });
    return rate;
  };
  await measure();
  return { measure, close };
}

/** Changes that were committed at once, as if the relay had been away. */
async function fromOutbox({ team }: Pick<Run, "team">, events: number): Promise<number[]> {
  await sql`insert into webhook_outbox (team_id, environment, type, objects)
    select ${team.team.id}, 'LIVE', 'newsletter.started',
      '[{"object":"newsletter","id":"nl_' || i || '","n":' || i || ',"padding":"' || ${PADDING}::text || '"}]'
    from generate_series(0, ${events - 1}::int) i`.execute(kysely(team.em));
  const at = now();
  await emitSome(team, 1, "newsletter.paused");
  return Array.from({ length: events }, () => at);
}

/** @returns the paths of so many new endpoints of a team, the first ones of which hang */
async function makeEndpoints(
  { team, sink }: Pick<Run, "team" | "sink">,
  { endpoints, latencyMs, hanging = 0, hangMs }: Pick<Scenario, "endpoints" | "latencyMs" | "hanging" | "hangMs">,
): Promise<string[]> {
  const paths = Array.from(
    { length: endpoints },
    (_, e) => `/${unique("e")}/${e < hanging ? (hangMs ?? "hang") : latencyMs}`,
  );
  for (const path of paths) {
    await makeEndpoint(team, {
      url: `http://127.0.0.1:${sink.port}${path}`,
      events: ["newsletter.started", "subscriber.created"],
    });
  }
  return paths;
}

/** About 60 changes a second. */
async function steadily({ team }: Run, events: number): Promise<number[]> {
  const committed: number[] = [];
  for (let n = 0; n < events; n++) {
    await emitSome(team, 1, "newsletter.started", n);
    committed.push(now());
    await delay(STEADY_MS);
  }
  return committed;
}

/** One change at a time, each after the one before has arrived. */
async function quietly({ team, sink }: Run, events: number): Promise<number[]> {
  const committed: number[] = [];
  for (let n = 0; n < events; n++) {
    await emitSome(team, 1, "newsletter.started", n);
    committed.push(now());
    for (const giveUpAt = now() + SILENT_MS; (await sink.count()) <= n && now() < giveUpAt; ) await delay(5);
  }
  return committed;
}

const SCENARIOS: Record<string, Scenario> = {
  "through the API": {
    endpoints: 1,
    latencyMs: 0,
    events: ({ events }) => events,
    feed: throughApi,
    bars: [
      { figure: "of an insert", least: 0.27 },
      { figure: "CPU s per 1,000", most: 1.9 },
    ],
  },
  "through the API, 50 ms": { endpoints: 1, latencyMs: 50, events: ({ events }) => events, feed: throughApi },
  "through the API, 2 s": {
    endpoints: 1,
    latencyMs: 2_000,
    events: ({ events }) => Math.ceil(events / 2),
    feed: throughApi,
    bars: [{ figure: "per second", least: 60 }],
  },
  "fan-out": {
    endpoints: FAN_OUT,
    latencyMs: 0,
    events: ({ events }) => events,
    feed: throughApi,
    bars: [{ figure: "of an insert", least: 1.2 }],
  },
  "from the outbox": {
    endpoints: 1,
    latencyMs: 0,
    events: ({ events }) => events * 2,
    feed: fromOutbox,
    bars: [{ figure: "per second", least: 2_500 }],
  },
  "from the outbox, fan-out": {
    endpoints: FAN_OUT,
    latencyMs: 0,
    events: ({ events }) => events,
    feed: fromOutbox,
    bars: [{ figure: "per second", least: 4_600 }],
  },
  "from the outbox, fan-out, 50 ms": {
    endpoints: FAN_OUT,
    latencyMs: 50,
    events: ({ events }) => events,
    feed: fromOutbox,
  },
  "first events": {
    endpoints: 200,
    latencyMs: 0,
    events: () => 1,
    feed: fromOutbox,
    bars: [{ figure: "last s", most: 10 }],
  },
  "fan-out, one hangs": {
    endpoints: FAN_OUT,
    latencyMs: 0,
    hanging: 1,
    events: ({ events }) => events,
    feed: fromOutbox,
  },
  "two of three take 10 s": {
    endpoints: 3,
    latencyMs: 0,
    hanging: 2,
    hangMs: 10_000,
    events: () => 2_400,
    feed: steadily,
    bars: [{ figure: "p50 ms", most: 200 }],
  },
  "beside another team's backlog": {
    endpoints: 1,
    latencyMs: 0,
    others: { teams: 1, events: 10_000 },
    events: () => 500,
    feed: steadily,
    bars: [{ figure: "p50 ms", most: 1_000 }],
  },
  "beside ten teams whose endpoints hang": {
    endpoints: 1,
    latencyMs: 0,
    others: { teams: 10, events: 400, hang: true },
    events: () => 1_500,
    feed: steadily,
    bars: [{ figure: "p95 ms", most: 1_000 }],
  },
  "when ten teams come whose endpoints hang": {
    endpoints: 1,
    latencyMs: 0,
    others: { teams: 10, events: 400, hang: true, afterMs: 5_000 },
    events: () => 1_500,
    feed: steadily,
    bars: [{ figure: "p95 ms", most: 1_000 }],
  },
  killed: { endpoints: 1, latencyMs: 0, events: ({ events }) => events * 4, feed: fromOutbox, kill: true },
  quiet: {
    endpoints: 1,
    latencyMs: 0,
    events: () => 100,
    feed: quietly,
    bars: [{ figure: "p50 ms", most: 20 }],
  },
};

/** Names of all scenarios. */
export const WEBHOOK_SCENARIOS = Object.keys(SCENARIOS);

/** Measures deliveries from the commit of a change to its receipt. */
export async function benchWebhooks(options: WebhooksOptions): Promise<BenchReport> {
  const port = await claimPort();
  const settings = { WEBHOOK_ALLOWED_HOSTS: `127.0.0.1:${port}` };
  const names = options.only?.length ? options.only : WEBHOOK_SCENARIOS;
  const unknown = names.find((name) => !Object.hasOwn(SCENARIOS, name));
  if (unknown !== undefined) throw new Error(`no scenario ${unknown}; there are ${WEBHOOK_SCENARIOS.join("; ")}`);
  return withStack({ ...options, settings, quiet: true }, async () => {
    const sink = await startWebhookSink(port);
    const loader = startApiLoad();
    const rows: Row[] = [];
    const cpu: Row[] = [];
    const bars: Row[] = [];
    const problems: string[] = [];
    let yardstick: Yardstick | undefined;
    try {
      yardstick = await openYardstick(loader);
      for (const name of names) {
        const scenario = SCENARIOS[name];
        if (!scenario) continue;
        const runs: Measured[] = [];
        for (let run = 1; run <= options.repeat; run++) {
          const measured = await measure(scenario, options, { sink, loader, yardstick });
          const named: Row = { scenario: name, ...(options.repeat > 1 && { run: String(run) }) };
          rows.push({ ...named, ...measured.row });
          if (measured.cpu) cpu.push({ ...named, ...measured.cpu });
          problems.push(...measured.problems.map((problem) => `${name}: ${problem}`));
          runs.push(measured);
        }
        bars.push(...barRows(name, scenario.bars ?? [], runs));
      }
    } finally {
      loader.close();
      yardstick?.close();
      sink.close();
    }
    return {
      bench: "webhooks",
      options: { events: options.events, repeat: options.repeat },
      tables: {
        Deliveries: rows,
        "CPU seconds per 1,000 deliveries": cpu,
        "Bars; an insert is one of a bare Express route in the same run": bars,
      },
      problems,
    };
  });
}

interface Measured {
  row: Row;
  cpu: Row | undefined;
  problems: string[];
}

/** The parts that every measurement needs. */
interface Bench extends Pick<Run, "sink" | "loader"> {
  yardstick: Yardstick;
}

/** Each bar beside the median of its figure. */
function barRows(scenario: string, bars: readonly Bar[], runs: readonly Measured[]): Row[] {
  return bars.map(({ figure, least, most }) => {
    const value = median(runs.map(({ row, cpu }) => Number(figure === "CPU s per 1,000" ? cpu?.["all"] : row[figure])));
    const isMet = value >= (least ?? Number.NEGATIVE_INFINITY) && value <= (most ?? Number.POSITIVE_INFINITY);
    return { scenario, figure, median: round(value, 3), least: least ?? null, most: most ?? null, met: isMet };
  });
}

async function measure(
  scenario: Scenario,
  options: WebhooksOptions,
  { sink, loader, yardstick }: Bench,
): Promise<Measured> {
  const { endpoints, latencyMs, hanging = 0, others } = scenario;
  const events = scenario.events(options);
  await sink.clear();
  const team = await makeTeam();
  const paths = await makeEndpoints({ team, sink }, scenario);
  const otherTeams = await Promise.all(Array.from({ length: others?.teams ?? 0 }, () => makeTeam()));
  for (const other of otherTeams) {
    const hanging = others?.hang ? FAN_OUT : 0;
    await makeEndpoints({ team: other, sink }, { endpoints: FAN_OUT, latencyMs: 0, hanging });
    if (others?.afterMs === undefined) await fromOutbox({ team: other }, others?.events ?? 0);
  }
  const addOthersChanges = async ({ afterMs, events }: { afterMs: number; events: number }) => {
    await delay(afterMs);
    for (const other of otherTeams) await fromOutbox({ team: other }, events);
  };
  const isCompared = scenario.bars?.some(({ figure }) => figure === "of an insert");
  const inserts = isCompared ? await yardstick.measure() : undefined;
  const answering = paths.slice(hanging);
  const expected = answering.length * events;
  const pids = () => ({ ...pidsOf(PROCESSES), sink: sink.pid });
  const before = usage(pids());

  const { afterMs, events: othersEvents = 0 } = others ?? {};
  const othersAdded = afterMs === undefined ? undefined : addOthersChanges({ afterMs, events: othersEvents });
  const fed = scenario.feed({ sink, loader, team, paths }, events);
  let restartedAt: number | undefined;
  if (scenario.kill) {
    await until(async () => (await sink.count()) >= expected / 2);
    const killed = kill("webhooks");
    await killed.again;
    restartedAt = now();
  }
  const committed = await fed;
  await othersAdded;
  let seen = -1;
  let seenAt = now();
  await until(async () => {
    const count = await sink.count(answering);
    if (count > seen) {
      seen = count;
      seenAt = now();
    }
    return count >= expected || now() - seenAt > SILENT_MS;
  });
  const after = usage(pids());
  const arrivals = await sink.arrivals();

  const latencies: number[] = [];
  let lost = 0;
  let received = 0;
  let lastAt = 0;
  for (const path of answering) {
    const { at = {}, received: count = 0 } = arrivals[path] ?? {};
    received += count;
    committed.forEach((committedAt, n) => {
      const arrivedAt = at[n];
      if (arrivedAt === undefined) lost++;
      else {
        latencies.push(arrivedAt - committedAt);
        lastAt = Math.max(lastAt, arrivedAt);
      }
    });
  }
  latencies.sort((a, b) => a - b);
  const first = Math.min(...committed);
  const latencyAt = (share: number) => (latencies.length === 0 ? 0 : round(quantile(latencies, share)));
  const duplicates = received - latencies.length;
  const perSecond = (latencies.length / (lastAt - first)) * 1000;
  const row: Row = {
    endpoints: String(endpoints),
    "sink ms": latencyMs,
    deliveries: latencies.length,
    "per second": round(perSecond),
    "inserts per second": inserts === undefined ? null : round(inserts),
    "of an insert": inserts === undefined ? null : round(perSecond / inserts, 3),
    "p50 ms": latencyAt(0.5),
    "p95 ms": latencyAt(0.95),
    "p99 ms": latencyAt(0.99),
    "last s": round((lastAt - first) / 1000, 1),
    lost,
    duplicates,
    ...(restartedAt && { "last after restart s": round((lastAt - restartedAt) / 1000, 1) }),
  };
  const cpu: Row | undefined = scenario.kill || others ? undefined : cpuPer(before, after, latencies.length);
  const problems = [
    ...(lost > 0 ? [`${lost} lost`] : []),
    ...(duplicates > 0 && !scenario.kill ? [`${duplicates} twice`] : []),
  ];
  // The next run counts what arrives.
  if (others && !others.hang) {
    await until(async () => (await sink.count()) >= expected + others.teams * others.events * FAN_OUT);
  }
  const teams = [team, ...otherTeams].map(({ team }) => team.id);
  await sql`delete from webhook_endpoints where team_id = any(${teams})`.execute(kysely(team.em));
  return { row, cpu, problems };
}

function cpuPer(before: Record<string, Usage>, after: Record<string, Usage>, deliveries: number): Row {
  const spent = Object.fromEntries(
    Object.keys(before).map((name) => [
      name,
      (((after[name]?.cpuSeconds ?? 0) - (before[name]?.cpuSeconds ?? 0)) / deliveries) * 1000,
    ]),
  );
  const all = Object.values(spent).reduce((sum, seconds) => sum + seconds, 0);
  return {
    ...Object.fromEntries(Object.entries(spent).map(([name, seconds]) => [name, round(seconds, 3)])),
    all: round(all, 3),
  };
}

const until = (condition: () => Promise<boolean>): Promise<boolean> =>
  eventually(condition, { withinMs: GIVE_UP_MS, everyMs: POLL_MS, what: "the deliveries of a run" });
