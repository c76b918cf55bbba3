import { setTimeout as delay } from "node:timers/promises";
import { claimPort } from "../config/ports.ts";
import { unsubscribeUrl } from "../domain/mail/links.ts";
import { makeTeam, type TestTeam, unique } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { stack } from "../test/support/stack.ts";
import { writeLedger } from "./ledger.ts";
import { type Answers, makeLoads, type NeighbourLoad } from "./neighbour-loads.ts";
import { type BenchReport, quantile, type Row, round } from "./report.ts";

export interface NeighbourOptions extends StackChoice {
  /** How long each load lasts. */
  seconds: number;
  /** People of the team that loads the service. */
  people: number;
  /** Names of loads, or their beginnings; all unless given. */
  only?: readonly string[] | undefined;
}

/** The other team begins its requests this often, whether or not those before are answered. */
const EVERY_MS = 300;
/** A load is under way before it is measured, and has ended before the next one. */
const BEFORE_MS = 500;
const AFTER_MS = 3_000;
const LIMIT_MS = 20_000;
/** Bound on what the other team may notice, above the control. */
const MOST_ABOVE_MS = 250;
/** A lane that is beyond its limit of requests waits for so long. */
const LIMITED_MS = 500;
/** Mails of the other team, each with a link. */
const MAILS = 2_000;

/** One team's requests beside the loads of another: what the one does must not be the other's wait. */
export async function benchNeighbours(options: NeighbourOptions): Promise<BenchReport> {
  const { seconds, people, only } = options;
  const port = await claimPort();
  return withStack({ ...options, settings: { WEBHOOK_ALLOWED_HOSTS: `127.0.0.1:${port}` } }, async () => {
    const { loads, close } = await makeLoads(people, port);
    const other = await makeTeam();
    const ask = requestsOf(other, await writeLedger(other, MAILS));
    const chosen = Object.entries(loads).filter(([name]) => only?.some((begin) => name.startsWith(begin)) ?? true);
    const rows: Row[] = [];
    const problems: string[] = [];
    let control: Latencies | undefined;
    try {
      for (const [name, load] of [["control", undefined] as const, ...chosen]) {
        const answers: Answers = {};
        const end = await start(load, answers);
        const { latencies, failures } = await measure(ask, seconds);
        await end();
        control ??= latencies;
        const row: Row = { load: name };
        for (const [request, sorted] of Object.entries(latencies)) {
          const [p50, p99] = [0.5, 0.99].map((share) => round(quantile(sorted, share)));
          Object.assign(row, { [`${request} p50 ms`]: p50, [`${request} p99 ms`]: p99 });
          const above = round(quantile(sorted, 0.99) - quantile(control[request] ?? [], 0.99));
          if (above > MOST_ABOVE_MS) problems.push(`${name}: the p99 of ${request} is ${above} ms above the control`);
        }
        const tell = (counts: Answers) =>
          Object.entries(counts)
            .map((count) => count.join(": "))
            .join(", ");
        rows.push({ ...row, failed: tell(failures), "answers to the load": tell(answers) });
        if (tell(failures) !== "") problems.push(`${name}: requests of the other team failed: ${tell(failures)}`);
      }
    } finally {
      close();
    }
    return { bench: "neighbours", options: { seconds, people }, tables: { "The other team, by load": rows }, problems };
  });
}

/** Starts the lanes of a load. @returns ends them, with what they do */
async function start(load: NeighbourLoad | undefined, answers: Answers): Promise<() => Promise<void>> {
  let hasEnded = false;
  const end = await load?.begin?.();
  const lane = async (number: number) => {
    for (let n = 0; !hasEnded; n++) {
      const answer = (await load?.ask(number, n).catch((error: unknown) => String(error))) ?? "";
      if (!hasEnded) answers[answer] = (answers[answer] ?? 0) + 1;
      // A refusal is the quickest answer: without a pause the load is the client's own CPU.
      await delay(/429|rate_limit/.test(answer) ? LIMITED_MS : 5);
    }
  };
  const lanes = Array.from({ length: load?.lanes ?? 0 }, (_, number) => lane(number));
  await delay(BEFORE_MS);
  return async () => {
    hasEnded = true;
    await end?.();
    await Promise.all(lanes);
    await delay(AFTER_MS);
  };
}

/** In ascending order, by kind of request. */
type Latencies = Record<string, number[]>;

type AskOther = Record<string, (n: number) => Promise<Response>>;

/** The requests of a well-behaved team, by kind. */
function requestsOf({ keys, vault }: TestTeam, sendId: string): AskOther {
  const headers = { "x-api-key": keys.live, "content-type": "application/json" };
  const signal = () => AbortSignal.timeout(LIMIT_MS);
  const body = () => JSON.stringify({ email: `${unique("p")}@ordinary.example` });
  const at = async (path: string, init: RequestInit = {}) =>
    fetch(`${(await stack()).api}${path}`, { headers, signal: signal(), ...init });
  return {
    lists: () => at("/lists"),
    create: () => at("/subscribers", { method: "POST", body: body() }),
    link: async (n) =>
      fetch(unsubscribeUrl(vault, (await stack()).origin, { sendId, seq: 1 + (n % MAILS) }), {
        method: "POST",
        headers: { "content-type": "application/x-www-form-urlencoded" },
        body: "List-Unsubscribe=One-Click",
        signal: signal(),
      }),
  };
}

let links = 0;

async function measure(ask: AskOther, seconds: number): Promise<{ latencies: Latencies; failures: Answers }> {
  const latencies: Latencies = Object.fromEntries(Object.keys(ask).map((request) => [request, []]));
  const failures: Answers = {};
  const one = async (request: string, answering: Promise<Response>) => {
    const startedAt = performance.now();
    const outcome = await answering.then(
      async (answer) => {
        await answer.text();
        return answer.ok ? undefined : String(answer.status);
      },
      (error: unknown) => (error instanceof Error ? error.name : String(error)),
    );
    latencies[request]?.push(performance.now() - startedAt);
    if (outcome !== undefined) failures[`${request} ${outcome}`] = (failures[`${request} ${outcome}`] ?? 0) + 1;
  };
  const asked: Promise<void>[] = [];
  const until = performance.now() + seconds * 1_000;
  while (performance.now() < until) {
    const n = links++;
    asked.push(...Object.entries(ask).map(([request, begin]) => one(request, begin(n))));
    await delay(EVERY_MS);
  }
  await Promise.all(asked);
  for (const of of Object.values(latencies)) of.sort((a, b) => a - b);
  return { latencies, failures };
}
