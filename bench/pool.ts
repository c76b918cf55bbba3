import { setImmediate as nextTurn } from "node:timers/promises";
import SMTPConnection from "nodemailer/lib/smtp-connection";
import { SmtpPool } from "../activities/smtp/pool.ts";
import { composeMessage, type FilledMessage } from "../domain/mail/message.ts";
import { LOOPBACK_ONLY, within } from "../test/support/smtp-guard.ts";
import { BODY, SUBJECT } from "./audience.ts";
import { recipient } from "./fill.ts";
import { usage } from "./processes.ts";
import { type BenchReport, median, type Row, round } from "./report.ts";
import { type Sink, startSink } from "./smtp-sink.ts";

export interface PoolOptions {
  /** Seconds that one measurement should take, about. */
  seconds: number;
  repeat: number;
  latenciesMs: readonly number[];
  connections: readonly number[];
}

/** Mails a second that a run is made for, so that it lasts about as long as asked at any latency. */
const expectedRate = (latencyMs: number, connections: number): number =>
  Math.min(8_000, latencyMs === 0 ? 8_000 : (connections * 1_000) / (latencyMs + 2));

const BATCH = 50;

interface Run {
  rate: number;
  cpuSeconds: number;
  opened: number;
}

type Sender = (sink: Sink, filled: FilledMessage, messages: number, connections: number) => Promise<void>;

/** The message of the measured newsletters, filled for one recipient. */
export const benchMessage = (): FilledMessage =>
  composeMessage({ subject: SUBJECT, html: BODY, fromEmail: "news@sender.example" }).fill(recipient(1));

/** Plain nodemailer: so many connections, each sends one message after the other. */
export const sendPlain: Sender = async (sink, { envelope, message }, messages, connections) => {
  let left = messages;
  const work = async () => {
    const connection = new SMTPConnection({ host: sink.host, port: sink.port, ignoreTLS: true, logger: false });
    await new Promise<void>((resolve, reject) => {
      connection.once("error", reject);
      connection.connect((error) => (error ? reject(error) : resolve()));
    });
    while (left-- > 0) {
      await new Promise<void>((resolve, reject) =>
        connection.send({ from: envelope.from, to: [envelope.to] }, message, (error) =>
          error ? reject(error) : resolve(),
        ),
      );
    }
    connection.quit();
    connection.close();
  };
  await Promise.all(Array.from({ length: connections }, work));
};

const pooled: Sender = (sink, filled, messages, connections) => sendPooled(sink, () => filled, messages, connections);

/** Sends messages over the pool, each as `fill` makes it. @throws {Error} when one was not sent */
export async function sendPooled(
  sink: Sink,
  fill: () => FilledMessage,
  messages: number,
  connections: number,
): Promise<void> {
  const pool = new SmtpPool({
    host: sink.host,
    port: sink.port,
    guard: LOOPBACK_ONLY,
    secure: "none",
    limits: within(30_000),
    maxConnections: connections,
  });
  const problems = new Set<string>();
  async function* batches() {
    for (let done = 0; done < messages; done += BATCH) {
      yield new Array<undefined>(Math.min(BATCH, messages - done)).fill(undefined);
      await nextTurn();
    }
  }
  for await (const mailed of pool.drain(batches(), { fill })) {
    for (const { outcome } of mailed) if (outcome.outcome !== "sent") problems.add(outcome.reason);
  }
  await pool.close({ graceMs: 5_000 });
  if (problems.size > 0) throw new Error(`messages were not sent: ${[...problems].join(", ")}`);
}

/** The pool beside plain nodemailer, with one message and sink: the difference is the cost of the pool. */
export async function benchPool({ seconds, repeat, latenciesMs, connections }: PoolOptions): Promise<BenchReport> {
  const filled = benchMessage();
  const sink = await startSink();
  const problems: string[] = [];
  const rows: Row[] = [];
  const run = async (sender: Sender, latencyMs: number, limit: number): Promise<Run> => {
    const messages = Math.ceil(expectedRate(latencyMs, limit) * seconds);
    await sink.clear(latencyMs);
    const open = (await sink.stats()).connections;
    const before = process.cpuUsage();
    await sender(sink, filled, messages, limit);
    const { user, system } = process.cpuUsage(before);
    const { received, firstAt, lastAt, mostConnections } = await sink.stats();
    if (received !== messages) problems.push(`${messages} messages were sent, ${received} arrived`);
    return {
      rate: messages / (((lastAt ?? 0) - (firstAt ?? 0)) / 1_000),
      cpuSeconds: ((user + system) / 1e6 / messages) * 10_000,
      opened: mostConnections - open,
    };
  };
  try {
    for (const latencyMs of latenciesMs) {
      for (const limit of connections) {
        const pool: Run[] = [];
        const nodemailer: Run[] = [];
        for (let i = 0; i < repeat; i++) {
          nodemailer.push(await run(sendPlain, latencyMs, limit));
          pool.push(await run(pooled, latencyMs, limit));
        }
        const rate = (runs: readonly Run[]) => median(runs.map((each) => each.rate));
        const cpu = (runs: readonly Run[]) => median(runs.map(({ cpuSeconds }) => cpuSeconds));
        rows.push({
          "latency ms": latencyMs,
          "connections allowed": limit,
          "opened by the pool": median(pool.map(({ opened }) => opened)),
          "pool, mails/s": round(rate(pool)),
          "nodemailer, mails/s": round(rate(nodemailer)),
          ratio: round(rate(pool) / rate(nodemailer), 2),
          "pool, cpu s / 10,000": round(cpu(pool), 2),
          "nodemailer, cpu s / 10,000": round(cpu(nodemailer), 2),
        });
      }
    }
    const sinkPeak = usage({ sink: sink.pid })["sink"]?.peakMiB ?? 0;
    return {
      bench: "pool",
      options: { seconds, repeat, "bytes of the message": filled.message.length, "sink peak MiB": round(sinkPeak) },
      tables: { "SmtpPool beside nodemailer's SMTPConnection.send": rows },
      problems,
    };
  } finally {
    await sink.close();
  }
}
