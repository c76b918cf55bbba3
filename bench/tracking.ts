import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { mailToken, trackedUrls } from "../domain/tracking/links.ts";
import { eventually } from "../test/support/eventually.ts";
import { makeTeam, type TestTeam } from "../test/support/factories.ts";
import { startApi } from "../test/support/own-database.ts";
import { pidOf } from "../test/support/processes.ts";
import { stack } from "../test/support/stack.ts";
import { openDatabaseProxy } from "../test/support/tcp-proxy.ts";
import { startApiLoad } from "./api-load.ts";
import { writeLedger } from "./ledger.ts";
import { resetPeaks, usage } from "./processes.ts";
import { type Row, round } from "./report.ts";

export interface TrackingLoad {
  seconds: number;
  perSecond: number;
  clients: number;
  mails: number;
}

/** The 99th percentile of the answers at the steady pace, in milliseconds. */
const MAX_P99_MS = 50;
/** How long the hits of a run may wait to be recorded. */
const RECORDED_WITHIN_MS = 60_000;
const BROWSER = "Mozilla/5.0 (X11; Linux x86_64; rv:132.0) Gecko/20100101 Firefox/132.0";
const PLACEHOLDER = "placeholder";
const PROCESSES = ["api", "postgres"] as const;

/**
 * Measures opens and clicks of one API process, its answers and whether Postgres gets every one of them: a row of the
 * first hits of a process that has just started, one at a steady rate, and one at the highest rate.
 */
export async function measureHits({
  seconds,
  perSecond,
  clients,
  mails,
}: TrackingLoad): Promise<{ rows: Row[]; problems: string[] }> {
  const load = startApiLoad();
  try {
    const rows: Row[] = [];
    const problems: string[] = [];
    const steady = `${perSecond} a second`;
    for (const [name, pace] of [[`${steady}, the first`, perSecond], [steady, perSecond], ["highest rate"]] as const) {
      const team = await makeTeam();
      const { origin } = await stack();
      const paths = await pathsOf(team, origin, mails);
      const before = cpuSeconds();
      const startedAt = performance.now();
      const result = await load.run({
        origin,
        method: "GET",
        path: "/",
        paths,
        headers: { "user-agent": BROWSER },
        clients,
        seconds,
        ...(pace === undefined ? {} : { perSecond: pace }),
      });
      const wall = (performance.now() - startedAt) / 1_000;
      const endedAt = performance.now();
      const recorded = await untilRecorded(team, result.answered);
      const after = cpuSeconds();
      rows.push({
        pace: name,
        "hits/s": round(result.rate),
        "p50 ms": round(result.p50, 1),
        "p99 ms": round(result.p99, 1),
        "recorded after s": round((performance.now() - endedAt) / 1_000, 1),
        ...Object.fromEntries(
          PROCESSES.flatMap((process) => {
            const used = after[process] - before[process];
            return [
              [`CPU of ${process}, %`, round((used / wall) * 100)],
              [`${process}, µs a hit`, round((used / result.answered) * 1_000_000)],
            ];
          }),
        ),
      });
      for (const [status, count] of Object.entries(result.unexpected)) {
        problems.push(`${count} requests were answered with ${status}`);
      }
      if (recorded < result.answered) problems.push(`of ${result.answered} hits ${recorded} were recorded`);
      if (name === steady && !(result.p99 < MAX_P99_MS)) problems.push(`p99 is ${round(result.p99, 1)} ms`);
    }
    return { rows, problems };
  } finally {
    load.close();
  }
}

/** How long hits come before Postgres goes away, and after it is back. */
const AROUND_OUTAGE_SECONDS = 5;
/** How long the hits of an outage may wait to be recorded once it has ended. */
const CAUGHT_UP_WITHIN_MS = 180_000;

/** Cuts an API process of its own off from Postgres while hits come, and counts those that Postgres has afterwards. */
export async function measureOutage({
  outageSeconds,
  perSecond,
  clients,
  mails,
}: Omit<TrackingLoad, "seconds"> & { outageSeconds: number }): Promise<{ rows: Row[]; problems: string[] }> {
  const load = startApiLoad();
  const proxy = await openDatabaseProxy();
  const api = await startApi({ DATABASE_URL: proxy.url });
  const pids = { api: api.pid ?? Number.NaN };
  try {
    const team = await makeTeam();
    const paths = await pathsOf(team, api.origin, mails);
    const cutting = (async () => {
      await delay(AROUND_OUTAGE_SECONDS * 1_000);
      proxy.cut();
      await delay(outageSeconds * 1_000);
      const waiting = await countRecorded(team);
      proxy.heal();
      return { recordedBefore: waiting, endedAt: performance.now() };
    })();
    resetPeaks(pids);
    const seconds = outageSeconds + 2 * AROUND_OUTAGE_SECONDS;
    const result = await load.run({
      ...{ origin: api.origin, method: "GET", path: "/", paths, headers: { "user-agent": BROWSER } },
      ...{ clients, seconds, perSecond },
    });
    const { recordedBefore, endedAt } = await cutting;
    const recorded = await untilRecorded(team, result.answered, CAUGHT_UP_WITHIN_MS);
    const problems = Object.entries(result.unexpected).map(
      ([status, count]) => `${count} requests were answered with ${status}`,
    );
    if (recorded !== result.answered) problems.push(`of ${result.answered} hits ${recorded} were recorded`);
    if (!(result.p99 < MAX_P99_MS)) problems.push(`p99 is ${round(result.p99, 1)} ms`);
    const row = {
      "Postgres away, s": outageSeconds,
      hits: result.answered,
      "hits/s": round(result.rate),
      "p50 ms": round(result.p50, 1),
      "p99 ms": round(result.p99, 1),
      "recorded before its return": recordedBefore,
      recorded,
      "all recorded after s": round((performance.now() - endedAt) / 1_000, 1),
      "api, peak MiB": round(usage(pids)["api"]?.peakMiB ?? 0),
    };
    return { rows: [row], problems };
  } finally {
    load.close();
    await api.stop();
    proxy.close();
  }
}

function cpuSeconds(): Record<(typeof PROCESSES)[number], number> {
  const used = usage(Object.fromEntries(PROCESSES.map((name) => [name, pidOf(name)])));
  return { api: used["api"]?.cpuSeconds ?? 0, postgres: used["postgres"]?.cpuSeconds ?? 0 };
}

/** @returns the paths of the pixels and links of a send's mails, in no order of the ledger */
async function pathsOf(team: TestTeam, origin: string, mails: number): Promise<string[]> {
  const { vault } = team;
  const sendId = await writeLedger(team, mails);
  const urls = trackedUrls(vault, origin, sendId, PLACEHOLDER);
  const clickUrl = urls.clickUrl("https://garden.example/letters/2026/part-1?utm_source=letter&utm_medium=email");
  // A step that has no common divisor with most numbers of mails.
  const step = 7_919;
  return Array.from({ length: mails }, (_, i) => {
    const token = mailToken(vault, { sendId, seq: ((i * step) % mails) + 1 });
    return new URL((i % 2 ? clickUrl : urls.openUrl).replace(PLACEHOLDER, token)).pathname;
  });
}

/** Waits until as many hits are recorded as were answered. @returns how many were recorded */
async function untilRecorded(team: TestTeam, answered: number, withinMs = RECORDED_WITHIN_MS): Promise<number> {
  let recorded = 0;
  await eventually(
    async () => {
      recorded = await countRecorded(team);
      return recorded >= answered;
    },
    { withinMs, what: "the hits in Postgres", everyMs: 100 },
  ).catch(() => undefined);
  return recorded;
}

/** A click on a mail without an open makes one. */
async function countRecorded({ em, team }: TestTeam): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select coalesce(sum(e.count), 0)::int as count from engagements e where e.team_id = ${team.id} and not (
      e.kind = 'opened' and exists (
        select from engagements c where c.send_id = e.send_id and c.seq = e.seq and c.kind = 'clicked'))`.execute(
    kysely(em),
  );
  return rows[0]?.count ?? 0;
}
