import { createServer, type Server, type Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { claimPort } from "../config/ports.ts";
import { kysely } from "../db/orm.ts";
import { unsubscribeUrl } from "../domain/mail/links.ts";
import { sealContext } from "../domain/secrets/crypto.ts";
import { makeTeam, type TestTeam, unique } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidOf } from "../test/support/processes.ts";
import { anotherNewsletter, type Sender, startSend } from "../test/support/sending.ts";
import { stack } from "../test/support/stack.ts";
import { emitSome, makeEndpoint } from "../test/support/webhooks.ts";
import { makeAudience } from "./audience.ts";
import { type Answers, HOSTILE_KINDS, type HostileLoad, startHostileLoad } from "./hostile-load.ts";
import { writeLedger } from "./ledger.ts";
import { resetPeaks, usage } from "./processes.ts";
import { type BenchReport, quantile, type Row, round } from "./report.ts";

export interface HostileOptions extends StackChoice {
  /** How long each kind of load lasts. */
  seconds: number;
  /** Subscribers of the hostile team. */
  rows: number;
}

/** The ordinary client begins a request this often, whether or not those before are answered. */
const EVERY_MS = 50;
/** Bounds on the effects that the ordinary client may notice. */
const MOST_P99_MS = 250;
const MOST_MIB = 600;
/** An event for the dead endpoint. */
const EVENTS_EVERY_MS = 100;
const PROCESSES = ["api", "sends", "dispatch", "webhooks", "maintenance"] as const;

/**
 * The ordinary client's view of a service that is under hostile load, with a relay that refuses logins and an endpoint
 * that is dead beside it.
 */
export async function benchHostile(options: HostileOptions): Promise<BenchReport> {
  const deadPort = await claimPort();
  const settings = { WEBHOOK_ALLOWED_HOSTS: `127.0.0.1:${deadPort}` };
  return withStack({ ...options, settings }, async () => {
    const relay = await startRefusingRelay();
    const hostile = await makeHostileTeam(options.rows, relay.port);
    const ordinary = await makeTeam();
    const { api, origin } = await stack();
    const { newsletterId, listId, keys } = await anotherNewsletter(hostile);
    const link = unsubscribeUrl(hostile.vault, origin, { sendId: await writeLedger(hostile, 1), seq: 1 });
    const load = startHostileLoad({ api, key: keys.live, newsletterId, listId, link });
    const rows: Row[] = [];
    const answers: Row[] = [];
    const problems: string[] = [];
    try {
      await startSend(hostile);
      await makeDeadEndpoint(hostile, deadPort);
      const phases = [["alone", []], ...HOSTILE_KINDS.map((kind) => [kind, [kind]]), ["all at once", HOSTILE_KINDS]];
      for (const [name, kinds] of phases as [string, string[]][]) {
        const phase = await measure({ name, kinds, load, ordinary, hostile, relay }, options.seconds);
        rows.push(phase.row);
        answers.push(...phase.answers);
        problems.push(...phase.problems);
      }
    } finally {
      load.close();
      relay.close();
    }
    return {
      bench: "hostile",
      options: { seconds: options.seconds, rows: options.rows },
      tables: { "The ordinary client, by what runs beside it": rows, "Answers to hostile requests": answers },
      problems,
    };
  });
}

interface Phase {
  name: string;
  kinds: string[];
  load: HostileLoad;
  ordinary: TestTeam;
  hostile: Sender;
  relay: RefusingRelay;
}

async function measure(phase: Phase, seconds: number) {
  const { name, kinds, load, ordinary, hostile, relay } = phase;
  const pids = Object.fromEntries(PROCESSES.map((process) => [process, pidOf(process)]));
  resetPeaks(pids);
  const logins = relay.logins();
  const end = await load.begin(kinds);
  const ended = new AbortController();
  const side = emitEvents(hostile, ended.signal);
  const { latencies, failures } = await ordinaryRequests(ordinary, seconds);
  ended.abort();
  await side;
  const answered = await end();

  latencies.sort((a, b) => a - b);
  const latencyAt = (share: number) => (latencies.length === 0 ? 0 : round(quantile(latencies, share)));
  const used = usage(pids);
  const peaks = Object.entries(used).map(([process, { peakMiB }]) => [process, round(peakMiB)] as const);
  const row: Row = {
    "beside it": name,
    requests: latencies.length,
    failed: failures.length,
    "p50 ms": latencyAt(0.5),
    "p99 ms": latencyAt(0.99),
    "most ms": round(latencies.at(-1) ?? 0),
    ...Object.fromEntries(peaks.map(([process, mib]) => [`${process} MiB`, mib])),
    "refused logins": relay.logins() - logins,
  };
  const problems = [
    ...[...new Set(failures)].map((failure) => `${name}: an ordinary request failed: ${failure}`),
    ...(latencyAt(0.99) > MOST_P99_MS ? [`${name}: p99 ${latencyAt(0.99)} ms`] : []),
    ...peaks.filter(([, mib]) => mib > MOST_MIB).map(([process, mib]) => `${name}: ${process} took ${mib} MiB`),
    ...PROCESSES.filter((process) => pidOf(process) !== pids[process]).map((process) => `${name}: ${process} died`),
  ];
  const rows = Object.entries(answered).map(([kind, counts]): Row => ({ phase: name, kind, answers: tell(counts) }));
  return { row, answers: rows, problems };
}

const tell = (counts: Answers): string =>
  Object.entries(counts)
    .map(([status, count]) => `${status}: ${count}`)
    .join(", ");

/** The requests of a well-behaved client, at a steady rate. */
async function ordinaryRequests({ keys }: TestTeam, seconds: number) {
  const { api } = await stack();
  const latencies: number[] = [];
  const failures: string[] = [];
  const stem = unique("ordinary");
  const calls = [
    () => ({ path: "/me" }),
    () => ({ path: "/lists?limit=25" }),
    () => ({ path: "/subscribers?limit=25" }),
    (n: number) => ({ path: "/subscribers", body: JSON.stringify({ email: `${stem}-${n}@example.com` }) }),
  ];
  const pending: Promise<void>[] = [];
  const one = async (n: number) => {
    const { path, body }: { path: string; body?: string } = calls[n % calls.length]?.(n) ?? { path: "/me" };
    const startedAt = performance.now();
    try {
      const answer = await fetch(`${api}${path}`, {
        headers: { "x-api-key": keys.live, "content-type": "application/json" },
        ...(body === undefined ? {} : { method: "POST", body }),
      });
      const text = await answer.text();
      if (!answer.ok) failures.push(`${path} ${answer.status} ${text.slice(0, 200)}`);
    } catch (error) {
      failures.push(`${path} ${error instanceof Error ? String(error.cause ?? error) : error}`);
    }
    latencies.push(performance.now() - startedAt);
  };
  const beganAt = performance.now();
  for (let n = 0; performance.now() - beganAt < seconds * 1_000; n++) {
    pending.push(one(n));
    await delay(Math.max(0, beganAt + (n + 1) * EVERY_MS - performance.now()));
  }
  await Promise.all(pending);
  return { latencies, failures };
}

/** A team with so many subscribers, large drafts, and an account at a relay that refuses logins. */
async function makeHostileTeam(rows: number, port: number): Promise<Sender> {
  const sender = await makeAudience({ recipients: rows, connections: 100, smtp: { host: "127.0.0.1", port } });
  const password = sender.vault.encrypt("wrong", sealContext("email_accounts", "encrypted_password", sender.accountId));
  await sql`update email_accounts set username = 'user', encrypted_password = ${password}
    where id = ${sender.accountId}`.execute(kysely(sender.em));
  const body = `<p>${"x".repeat(1_000_000)}</p>`;
  for (let i = 0; i < 20; i++) await sender.client.post("/newsletters", { name: `Large ${i}`, body });
  return sender;
}

async function makeDeadEndpoint(team: TestTeam, port: number): Promise<void> {
  await makeEndpoint(team, { url: `http://127.0.0.1:${port}/dead`, events: ["newsletter.started"] });
}

async function emitEvents(team: TestTeam, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    await emitSome(team, 1, "newsletter.started");
    await delay(EVENTS_EVERY_MS);
  }
}

interface RefusingRelay {
  port: number;
  /** Logins that it has refused. */
  logins(): number;
  close(): void;
}

function startRefusingRelay(): Promise<RefusingRelay> {
  let logins = 0;
  const sockets = new Set<Socket>();
  const server: Server = createServer((socket) => {
    sockets.add(socket.once("close", () => sockets.delete(socket)).once("error", () => {}));
    socket.write("220 relay ESMTP\r\n");
    socket.on("data", (data) => {
      const line = data.toString("latin1").toUpperCase();
      if (line.startsWith("EHLO")) socket.write("250-relay\r\n250-PIPELINING\r\n250 AUTH PLAIN LOGIN\r\n");
      else if (line.startsWith("AUTH")) {
        logins++;
        socket.write("535 5.7.8 refused\r\n");
      } else socket.end("221 bye\r\n");
    });
  });
  return new Promise((resolve) => {
    server.listen(0, "127.0.0.1", () => {
      const address = server.address();
      const port = typeof address === "object" && address ? address.port : 0;
      const close = () => {
        server.close();
        for (const socket of sockets) socket.destroy();
      };
      resolve({ port, logins: () => logins, close });
    });
  });
}
