import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { z } from "zod";
import { kysely } from "../db/orm.ts";
import { confirm, credits, ledgerStates, preview, type Sender, tokenOf } from "../test/support/sending.ts";
import { stack } from "../test/support/stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { sendWorkflowId } from "../workflows/ids.ts";
import { makeAudience } from "./audience.ts";
import { machineCpuSeconds, usage } from "./processes.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";
import { type Sink, startSink } from "./smtp-sink.ts";
import { type StackChoice, withStack } from "./stack.ts";

export interface SendOptions extends StackChoice {
  recipients: number;
  latencyMs: number;
  connections: number;
  /** Sends that are measured, one after the other. */
  repeat: number;
  /** Previews whose median is told, for the big list and a small one. */
  previews: number;
  /** Mail to the stack's mail catcher instead of the lean sink. */
  catcher: boolean;
}

/** Recipients of the small list. */
const FEW = 20;
const POLL_MS = 100;
/** A send that is slower than this is stuck. */
const SLOWEST_RATE = 50;
/** While a slice mails, outcomes are settled every few milliseconds; a longer gap is mostly that between two slices. */
const GAP_MS = 25;
/** Rows that may be SENDING at once, per connection. */
const ROWS_PER_CONNECTION = 3;

/** One send, from its draft to the last mail, and what it cost. */
interface Measured {
  rates: Row;
  cost: Row[];
  answers: Row;
  problems: string[];
}

/** Measures whole sends over HTTP: their rates, what they cost, and whether each address got exactly one mail. */
export function benchSend(options: SendOptions): Promise<BenchReport> {
  const { recipients, latencyMs, connections, repeat, catcher } = options;
  return withStack(options, async () => {
    const sink = await startSink(latencyMs);
    try {
      const runs: Measured[] = [];
      for (let run = 1; run <= repeat; run++) runs.push(await measure(options, sink));
      const rates = runs.map((run, i) => ({ run: String(i + 1), ...run.rates }));
      return {
        bench: "send",
        options: { recipients, "latency-ms": latencyMs, connections, repeat, to: catcher ? "mail catcher" : "sink" },
        tables: {
          Rates: repeat > 1 ? [...rates, { run: "median", ...medians(runs.map((run) => run.rates)) }] : rates,
          "Preview and confirm, ms": runs.map((run, i) => ({ run: String(i + 1), ...run.answers })),
          "CPU seconds per 10,000 mails and peak memory of one process": medianCosts(runs.map(({ cost }) => cost)),
        },
        problems: runs.flatMap(({ problems }) => problems),
      };
    } finally {
      await sink.close();
    }
  });
}

async function measure(options: SendOptions, sink: Sink): Promise<Measured> {
  const { recipients, latencyMs, connections, previews, catcher } = options;
  const { mail, pids } = await stack();
  const catcherUrl = new URL(mail.smtp);
  const smtp = catcher ? { host: catcherUrl.hostname, port: Number(catcherUrl.port) } : sink;
  const few = await makeAudience({ recipients: FEW, connections, smtp });
  const many = await makeAudience({ recipients, connections, smtp });
  const previewFew = await timePreviews(few, previews);
  const previewMany = await timePreviews(many, previews);
  const confirmFew = await timeConfirm(few);
  await untilSent(few, FEW, () => {});
  await sink.clear(latencyMs);
  // Those of the small send's account idle for a while yet.
  const { connections: idle } = await sink.stats();

  const measured = { ...pids, ...(catcher ? {} : { sink: sink.pid }) };
  const token = await tokenOf(many);
  const before = usage(measured);
  const machineBefore = machineCpuSeconds();
  const { ms: confirmMany, result: answer } = await timed(() => confirm(many, token));
  if (answer.status !== 202) throw new Error(`the confirm was answered with ${answer.status}: ${answer.text}`);
  const confirmedAt = performance.now();
  let mostSending = 0;
  await untilSent(many, recipients, async (sendId, sent) => {
    mostSending = Math.max(mostSending, await countSending(many, sendId, sent, recipients));
  });
  const wallSeconds = (performance.now() - confirmedAt) / 1_000;
  const machine = machineCpuSeconds() - machineBefore;
  const after = usage(measured);

  const sendId = await sendIdOf(many);
  const stats = await sink.stats();
  const ledger = await ledgerSeconds(many, sendId);
  const cpu = Object.keys(measured).map((name) => ({
    process: name,
    "cpu s / 10,000": round(
      (((after[name]?.cpuSeconds ?? 0) - (before[name]?.cpuSeconds ?? 0)) / recipients) * 10_000,
      3,
    ),
    "peak MiB": round(after[name]?.peakMiB ?? 0),
  }));
  const ours = cpu.reduce((sum, row) => sum + row["cpu s / 10,000"], 0);
  const sinkSeconds = ((stats.lastAt ?? 0) - (stats.firstAt ?? 0)) / 1_000;
  return {
    rates: {
      "mails/s, first to last": round(recipients / (catcher ? ledger.span : sinkSeconds)),
      "by the ledger": round(recipients / ledger.span),
      "from the confirm": round(recipients / wallSeconds),
      "first mail after s": catcher ? null : round(wallSeconds - sinkSeconds - ledger.tail, 2),
      "pauses s": round(ledger.gaps, 2),
      connections: catcher ? null : stats.mostConnections - idle,
      "most SENDING": mostSending,
      "history events": await historyLength(sendId),
      "others' cpu": `${round(((machine - (ours * recipients) / 10_000) / wallSeconds) * 100)} %`,
    },
    cost: [...cpu, { process: "all", "cpu s / 10,000": round(ours, 3), "peak MiB": null }],
    answers: {
      [`preview of ${FEW}`]: round(previewFew, 1),
      [`preview of ${recipients}`]: round(previewMany, 1),
      [`confirm of ${FEW}`]: round(confirmFew, 1),
      [`confirm of ${recipients}`]: round(confirmMany, 1),
    },
    problems: [
      ...(await wrongs(many, recipients)),
      ...(catcher || (stats.received === recipients && stats.recipients === recipients && stats.duplicates === 0)
        ? []
        : [`${recipients} mails were due, the sink got ${stats.received}, ${stats.duplicates} of them again`]),
      ...(mostSending > ROWS_PER_CONNECTION * connections ? [`${mostSending} rows were SENDING at once`] : []),
    ],
  };
}

async function timePreviews(sender: Sender, times: number): Promise<number> {
  const latencies: number[] = [];
  for (let i = 0; i < times; i++) {
    const { ms, result } = await timed(() => preview(sender));
    if (result.status !== 200) throw new Error(`a preview was answered with ${result.status}: ${result.text}`);
    latencies.push(ms);
  }
  return median(latencies);
}

async function timeConfirm(sender: Sender): Promise<number> {
  const token = await tokenOf(sender);
  const { ms, result } = await timed(() => confirm(sender, token));
  if (result.status !== 202) throw new Error(`a confirm was answered with ${result.status}: ${result.text}`);
  return ms;
}

const sendRow = z.object({ id: z.string(), status: z.string(), account_id: z.string() });

async function readSendOf({ em, newsletterId }: Sender) {
  const row = await kysely(em)
    .selectFrom("sends")
    .select(["id", "status", "account_id"])
    .where("resource_id", "=", newsletterId)
    .executeTakeFirst();
  return sendRow.parse(row);
}

const sendIdOf = async (sender: Sender): Promise<string> => (await readSendOf(sender)).id;

/** Waits for the send's end; `look` is called now and then meanwhile. */
async function untilSent(
  sender: Sender,
  recipients: number,
  look: (sendId: string, sent: number) => unknown,
): Promise<void> {
  const giveUpAt = performance.now() + 60_000 + (recipients / SLOWEST_RATE) * 1_000;
  let sent = 0;
  for (;;) {
    const { id, status } = await readSendOf(sender);
    if (status === "SENT") return;
    if (status === "FAILED" || status === "CANCELLED" || status === "PAUSED") throw new Error(`the send is ${status}`);
    if (performance.now() > giveUpAt) throw new Error(`the send is still ${status}`);
    await look(id, sent);
    sent = await sentSoFar(sender, id, sent);
    await delay(POLL_MS);
  }
}

/** The highest row that was sent, looked for from where it was: the ledger is walked by seq, and never counted whole. */
async function sentSoFar({ em }: Sender, sendId: string, from: number): Promise<number> {
  const { rows } = await sql<{ seq: number | null }>`
    select max(seq) as seq from (
      select seq, state from send_recipients
      where send_id = ${sendId} and seq >= ${from} order by seq limit 3000) r
    where state = 'SENT'`.execute(kysely(em));
  return rows[0]?.seq ?? from;
}

/** Rows that are SENDING, among those near the highest one that was sent. */
async function countSending({ em }: Sender, sendId: string, sent: number, recipients: number): Promise<number> {
  const { rows } = await sql<{ count: number }>`
    select count(*)::int as count from send_recipients
    where send_id = ${sendId} and seq between ${Math.max(0, sent - 1_000)} and ${Math.min(recipients, sent + 3_000)}
      and state = 'SENDING'`.execute(kysely(em));
  return rows[0]?.count ?? 0;
}

/** From the first settled mail to the last, from there to the send's end, and the gaps in which nothing was settled. */
async function ledgerSeconds({ em }: Sender, sendId: string): Promise<{ span: number; tail: number; gaps: number }> {
  const { rows } = await sql<{ span: number; tail: number; gaps: number }>`
    select (
        select coalesce(extract(epoch from sum(at - before) filter (where at - before > make_interval(secs => ${GAP_MS / 1_000}))), 0)::float8
        from (
          select at, lag(at) over (order by at) as before
          from (select distinct updated_at as at from send_recipients where send_id = ${sendId} and state = 'SENT') times
        ) steps
      ) as gaps,
      extract(epoch from max(r.updated_at) - min(r.updated_at))::float8 as span,
      extract(epoch from max(s.completed_at) - max(r.updated_at))::float8 as tail
    from send_recipients r join sends s on s.id = r.send_id
    where r.send_id = ${sendId} and r.state = 'SENT'`.execute(kysely(em));
  return rows[0] ?? { span: Number.NaN, tail: Number.NaN, gaps: Number.NaN };
}

async function historyLength(sendId: string): Promise<number> {
  const { client, close } = await temporalClient();
  try {
    return (await client.workflow.getHandle(sendWorkflowId(sendId)).describe()).historyLength;
  } finally {
    await close();
  }
}

/** Whatever does not add up at the end of a send. */
async function wrongs(sender: Sender, recipients: number): Promise<string[]> {
  const states = await ledgerStates(sender);
  const { available, reserved, mismatch } = await credits(sender);
  const wrong: string[] = [];
  if (states.SENT !== recipients) wrong.push(`of ${recipients} recipients the ledger has ${JSON.stringify(states)}`);
  if (mismatch || reserved !== 0) wrong.push(`${available} credits are left and ${reserved} still reserved`);
  return wrong;
}

function medians(rows: readonly Row[]): Row {
  const columns = Object.keys(rows[0] ?? {});
  return Object.fromEntries(
    columns.map((column) => {
      const values = rows.map((row) => row[column]).filter((value) => typeof value === "number");
      return [column, values.length === rows.length ? round(median(values), 3) : null];
    }),
  );
}

function medianCosts(runs: readonly Row[][]): Row[] {
  return (runs[0] ?? [])
    .map((row, i) => ({ ...medians(runs.map((run) => run[i] ?? {})), process: row["process"] ?? "" }))
    .map(({ process: name, ...figures }) => ({ process: name, ...figures }));
}
