import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { z } from "zod";
import type { TrackingMode } from "../db/entities/team.ts";
import { kysely } from "../db/orm.ts";
import { mostInFlight } from "../domain/sends/ledger/account-capacity.ts";
import { sendWorkflowId } from "../temporal/ids.ts";
import { eventually } from "../test/support/eventually.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { kill, pidsOf } from "../test/support/processes.ts";
import {
  beginToday,
  confirm,
  credits,
  ledgerStates,
  openFurtherLanes,
  type Sender,
  setTomorrow,
  tokenOf,
} from "../test/support/sending.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { makeAudience } from "./audience.ts";
import { machineCpuSeconds, resetPeaks, usage } from "./processes.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";
import { benchMessage, sendPlain } from "./senders.ts";
import { type Sink, startSink } from "./smtp-sink.ts";
import { timeConfirm, timePreviews } from "./timed-sends.ts";

export interface SendOptions extends StackChoice {
  /** Sizes of the lists, each mailed for itself. */
  recipients: readonly number[];
  latencyMs: number;
  /** Of each account. */
  connections: number;
  /** Accounts that mail each send side by side. */
  accounts: number;
  /** Sends of each size that are measured, one after the other. */
  repeat: number;
  /** Previews whose median is reported, for the big list and a small one. */
  previews: number;
  /** Kill the dispatch worker in the middle of each send. */
  kill: boolean;
  /** Send a body with links in turns without tracking and with it. */
  tracking: boolean;
  /** The same in turns with tracking of all, and of those who agreed: all of them. */
  consent: boolean;
  /** Leave out the figures of Postgres for each send: it reports them seconds later. */
  brief?: boolean;
  /** Begins work beside a send, right before its confirm. @returns ends that work, after the last mail */
  beside?: () => Promise<() => Promise<void>>;
}

/** The rate of a tracked send is no smaller share of that of the same send without tracking. */
const TRACKED_SHARE = 0.85;
/** The same of a send that looks up consents, of one that tracks all. */
const CONSENT_SHARE = 0.97;
/** Mails of the yardstick, and its connections to a server that answers at once; to a slow one it has those of the send. */
const YARDSTICK_MAILS = 20_000;
const YARDSTICK_CONNECTIONS = 10;
/** The send's rate beside the yardstick's should be this at least: to a server that answers at once, also over few connections, and to a slow one. */
const YARDSTICK_RATIO = { atOnce: 1, slow: 0.93, fewConnections: 0.8 };
/** Recipients of the small list. */
const FEW = 20;
const POLL_MS = 100;
/** A send that is slower than this is stuck. */
const SLOWEST_RATE = 50;
/** While a slice mails, outcomes are settled every few milliseconds; a longer gap is mostly that between two slices. */
const GAP_MS = 25;
/** An idle backend of Postgres reports its counts after 10 s at the latest. */
const POSTGRES_REPORTS_MS = 10_500;
/** The speed at which a worker is killed is taken over this time. */
const KILL_LOOK_MS = 500;
/** After this long without mail no worker has taken over. */
const SILENT_MS = 120_000;

/** Everything that is measured, as the tables name it. */
const PROCESSES = ["api", "sends", "dispatch", "maintenance", "postgres", "temporal"] as const;

/** One send, from its draft to the last mail, and its cost. */
interface Measured {
  rates: Row;
  /** Plain nodemailer to the same sink, right before the send. */
  yardstick: Row | undefined;
  answers: Row;
  /** Absent when a worker was killed: its usage is lost with it. */
  cpu: Row | undefined;
  memory: Row;
  postgres: Row | undefined;
  kill: Row | undefined;
  problems: string[];
}

/** Measures whole sends over HTTP: their rates, their costs, and whether each address got exactly one mail. */
export function benchSend(options: SendOptions): Promise<BenchReport> {
  return withStack(options, () => measureSends(options));
}

/** The same on the stack that is up. */
export async function measureSends(options: SendOptions): Promise<BenchReport> {
  const { recipients: sizes, latencyMs, connections, accounts, repeat, kill: kills, consent } = options;
  const tracking = options.tracking || consent;
  const [off, on] = consent ? (["ALL", "AGREED"] as const) : (["OFF", "ALL"] as const);
  const modeOf = (tracked: boolean | undefined) => (tracked === undefined ? undefined : tracked ? on : off);
  const sink = await startSink(latencyMs);
  try {
    const runs: (Measured & { size: number; tracked: boolean | undefined })[] = [];
    const variants = tracking ? [false, true] : [undefined];
    for (const size of sizes) {
      for (let run = 1; run <= repeat; run++) {
        // The order alternates, so that both variants are equally affected by growth over the runs.
        for (const tracked of run % 2 === 0 ? variants.toReversed() : variants)
          runs.push({ size, tracked, ...(await measure(options, size, sink, modeOf(tracked))) });
      }
    }
    const rowsOfVariant = (part: (run: Measured) => Row | undefined, size: number, tracked?: boolean): Row[] => {
      const rows = runs
        .filter((run) => run.size === size && run.tracked === tracked)
        .flatMap((run): Row[] => {
          const row = part(run);
          return row ? [row] : [];
        });
      const named = { recipients: size, ...(tracked === undefined ? {} : { tracking: tracked ? on : off }) };
      const numbered = rows.map((row, i) => ({ ...named, run: String(i + 1), ...row }));
      return rows.length > 1 ? [...numbered, { ...named, run: "median", ...medians(rows) }] : numbered;
    };
    const rowsOf = (part: (run: Measured) => Row | undefined): Row[] =>
      sizes.flatMap((size) => variants.flatMap((tracked) => rowsOfVariant(part, size, tracked)));
    const shares = tracking ? sizes.map((size) => trackedShare(runs, size)) : [];
    const cpu = rowsOf((run) => run.cpu);
    const yardsticks = rowsOf((run) => run.yardstick);
    const killed = rowsOf((run) => run.kill);
    return {
      bench: "send",
      options: {
        recipients: sizes.join(","),
        "latency-ms": latencyMs,
        connections,
        accounts,
        repeat,
        kill: kills,
        tracking,
      },
      tables: {
        ...(tracking && { [`Rates with tracking ${on}, as a share of those with ${off}, medians`]: shares }),
        Rates: rowsOf(({ rates }) => rates),
        ...(yardsticks.length > 0 && { "The send beside plain nodemailer": yardsticks }),
        "Preview and confirm, ms": rowsOf(({ answers }) => answers),
        ...(cpu.length > 0 && { "CPU seconds per 10,000 mails": cpu }),
        "Peak memory during the send, MiB; of Postgres, that of its largest process": rowsOf(({ memory }) => memory),
        ...(!options.brief && { "Postgres during the send": rowsOf(({ postgres }) => postgres) }),
        ...(killed.length > 0 && { "A dispatch worker killed at full speed": killed }),
      },
      problems: [
        ...runs.flatMap(({ problems }) => problems),
        ...shares.flatMap(({ recipients, share }) =>
          Number(share) < (consent ? CONSENT_SHARE : TRACKED_SHARE)
            ? [`tracking ${on} leaves ${share} of the rate to ${recipients} recipients`]
            : [],
        ),
      ],
    };
  } finally {
    sink.close();
  }
}

/** The rate of sends with tracking, as a share of the rate without it. */
function trackedShare(runs: readonly (Measured & { size: number; tracked: boolean | undefined })[], size: number): Row {
  const rateOf = (wanted: boolean) =>
    median(
      runs
        .filter((run) => run.size === size && run.tracked === wanted)
        .map(({ rates }) => Number(rates["mails/s, first to last"])),
    );
  const [off, on] = [rateOf(false), rateOf(true)];
  return { recipients: size, "off, mails/s": round(off), "on, mails/s": round(on), share: round(on / off, 3) };
}

async function measure(
  options: SendOptions,
  recipients: number,
  sink: Sink,
  tracking: TrackingMode | undefined,
): Promise<Measured> {
  const { latencyMs, connections, accounts, previews } = options;
  const few = await makeAudience({ recipients: FEW, connections, smtp: sink, tracking });
  const many = await makeAudience({ recipients, connections, accounts, smtp: sink, tracking });
  const previewFew = await timePreviews(few, previews);
  const previewMany = await timePreviews(many, previews);
  const { ms: confirmFew } = await timeConfirm(few);
  await untilSent(few, FEW, () => {});
  const yardstick = options.brief || options.kill ? undefined : await measurePlain(sink, latencyMs, connections);
  await sink.clear(latencyMs);
  if (accounts > 1) await setTomorrow(many);
  const token = await tokenOf(many);
  const postgresBefore = options.brief ? undefined : await postgresActiveSeconds(many);
  // Those of the small send's account may idle for a while yet.
  const { connections: idle } = await sink.stats();

  const pids = () => ({ ...pidsOf(PROCESSES), sink: sink.pid });
  const measured = pids();
  resetPeaks(measured);
  const before = usage(measured);
  const machineBefore = machineCpuSeconds();
  const endBeside = await options.beside?.();
  const { ms: confirmMany, result: answer } = await timed(() => confirm(many, token));
  if (answer.status !== 202) throw new Error(`the confirm was answered with ${answer.status}: ${answer.text}`);
  const sendId = await sendIdOf(many);
  if (accounts > 1) await openFurtherLanes(many, sendId);
  const confirmedAt = performance.now();
  if (accounts > 1) await beginToday(many, sendId);
  const killing = options.kill ? killInTheMiddle(sink, recipients) : undefined;
  // If the send fails, that failure is reported.
  killing?.catch(() => undefined);
  let mostSending = 0;
  await untilSent(many, recipients, async (sendId, sent) => {
    mostSending = Math.max(mostSending, await countSending(many, sendId, sent, recipients));
  });
  await endBeside?.();
  const wallSeconds = (performance.now() - confirmedAt) / 1_000;
  const machine = machineCpuSeconds() - machineBefore;
  const after = usage(pids());

  const stats = await sink.stats();
  const ledger = await ledgerSeconds(many, sendId);
  const history = await historyLength(sendId);
  const killed = killing && (await checkKill(many, sink, await killing, { recipients, connections, accounts }));
  const postgres = postgresBefore === undefined ? undefined : (await postgresActiveSeconds(many)) - postgresBefore;
  const seconds = (name: string) => (after[name]?.cpuSeconds ?? 0) - (before[name]?.cpuSeconds ?? 0);
  const ours = Object.keys(measured).reduce((sum, name) => sum + seconds(name), 0);
  const each = (value: number) => round((value / recipients) * 10_000, 3);
  const sinkSeconds = ((stats.lastAt ?? 0) - (stats.firstAt ?? 0)) / 1_000;
  const rate = recipients / sinkSeconds;
  return {
    rates: {
      "latency ms": latencyMs,
      "mails/s, first to last": round(rate),
      "by the ledger": round(recipients / ledger.span),
      "from the confirm": round(recipients / wallSeconds),
      "first mail after s": round(wallSeconds - sinkSeconds - ledger.tail, 2),
      "pauses s": round(ledger.gaps, 2),
      connections: stats.mostConnections - idle,
      "most SENDING": mostSending,
      "history events": history,
    },
    yardstick: yardstick && {
      "nodemailer, connections": yardstick.connections,
      "nodemailer, mails/s": round(yardstick.rate),
      "send, mails/s": round(rate),
      ratio: round(rate / yardstick.rate, 2),
      "ratio at least":
        YARDSTICK_RATIO[latencyMs > 0 ? "slow" : connections > YARDSTICK_CONNECTIONS ? "atOnce" : "fewConnections"],
    },
    answers: {
      [`preview of ${FEW}`]: round(previewFew, 1),
      preview: round(previewMany, 1),
      [`confirm of ${FEW}`]: round(confirmFew, 1),
      confirm: round(confirmMany, 1),
    },
    cpu: killed
      ? undefined
      : {
          ...Object.fromEntries(Object.keys(measured).map((name) => [name, each(seconds(name))])),
          all: each(ours),
          "others, % of a core": round(((machine - ours) / wallSeconds) * 100),
        },
    memory: Object.fromEntries(Object.keys(measured).map((name) => [name, round(after[name]?.peakMiB ?? 0)])),
    postgres:
      postgres === undefined
        ? undefined
        : {
            "executing and committing, s": round(postgres, 2),
            "per 10,000 mails, s": each(postgres),
            "busy connections, on average": round(postgres / wallSeconds, 2),
            "CPU s": round(seconds("postgres"), 2),
          },
    kill: killed?.row,
    problems: [
      ...(killed?.problems ?? (await wrongs(many, recipients))),
      ...(killed || (stats.received === recipients && stats.recipients === recipients)
        ? []
        : [`${recipients} mails were due, the sink got ${stats.received}`]),
      ...(stats.duplicates === 0 ? [] : [`${stats.duplicates} mails came again`]),
      ...(mostSending > mostInFlight(connections) * accounts ? [`${mostSending} rows were SENDING at once`] : []),
    ],
  };
}

/** Mails by plain nodemailer, so that a send is compared with it on the same machine in the same minute. */
async function measurePlain(
  sink: Sink,
  latencyMs: number,
  most: number,
): Promise<{ rate: number; connections: number }> {
  const connections = latencyMs === 0 ? Math.min(YARDSTICK_CONNECTIONS, most) : most;
  await sink.clear(latencyMs);
  const { connections: before } = await sink.stats();
  await sendPlain(sink, benchMessage(), YARDSTICK_MAILS, connections);
  const { firstAt, lastAt } = await sink.stats();
  await eventually(async () => (await sink.stats()).connections <= before, { what: "nodemailer's connections closed" });
  return { rate: YARDSTICK_MAILS / (((lastAt ?? 0) - (firstAt ?? 0)) / 1_000), connections };
}

/**
 * Seconds that connections to the database have spent executing and committing, ever. Waits until all have reported: they
 * must idle meanwhile.
 */
async function postgresActiveSeconds({ em }: Sender): Promise<number> {
  await delay(POSTGRES_REPORTS_MS);
  const { rows } = await sql<{ seconds: number }>`
    select active_time / 1000 as seconds from pg_stat_database where datname = current_database()`.execute(kysely(em));
  return rows[0]?.seconds ?? Number.NaN;
}

/** When the worker was killed, and how long no mail arrived after it. */
interface Kill {
  /** Mails the sink had got by then, and how fast they came just before. */
  received: number;
  rate: number;
  /** From the kill to the next mail of the worker that follows. */
  silentSeconds: number;
}

/** Kills the dispatch worker once half of the mails are there. */
async function killInTheMiddle(sink: Sink, recipients: number): Promise<Kill> {
  const seen: { received: number; at: number }[] = [];
  for (;;) {
    const { received } = await sink.stats();
    const at = performance.now();
    while (seen[1] !== undefined && at - seen[1].at > KILL_LOOK_MS) seen.shift();
    if (received >= recipients / 2) {
      const { again } = kill("dispatch");
      const since = seen[0] ?? { received: 0, at: Number.NaN };
      const rate = ((received - since.received) / (at - since.at)) * 1_000;
      await again;
      return { received, rate, silentSeconds: await silence(sink) };
    }
    seen.push({ received, at });
    await delay(POLL_MS / 2);
  }
}

/** Waits until mail comes again. @returns seconds since the last one before */
async function silence(sink: Sink): Promise<number> {
  const { lastAt } = await sink.stats();
  return eventually(
    async () => {
      const { lastAt: now } = await sink.stats();
      return now !== null && lastAt !== null && (now - lastAt) / 1_000;
    },
    { withinMs: SILENT_MS, what: "a mail after the kill", everyMs: POLL_MS / 2 },
  ).then(Number);
}

/** Checks that no recipient is missing and that no more are unknown than may be in flight; counts those mailed twice. */
async function checkKill(
  sender: Sender,
  sink: Sink,
  { received, rate, silentSeconds }: Kill,
  { recipients, connections, accounts }: { recipients: number; connections: number; accounts: number },
): Promise<{ row: Row; problems: string[] }> {
  const { SENT: sent = 0, UNKNOWN: unknown = 0, ...others } = await ledgerStates(sender);
  const { rows } = await sql<{ email: string }>`
    select r.email from send_recipients r join newsletters n on n.send_id = r.send_id
    where n.id = ${sender.newsletterId} and r.state = 'UNKNOWN'`.execute(kysely(sender.em));
  const unknownMailed = await sink.reached(rows.map(({ email }) => email));
  const stats = await sink.stats();
  const missing = sent - (stats.recipients - unknownMailed);
  const allowed = mostInFlight(connections) * accounts;
  const { reserved, mismatch } = await credits(sender);
  const problems: string[] = [];
  if (unknown > allowed) problems.push(`${unknown} are unknown after a kill, ${allowed} may be`);
  if (missing !== 0) problems.push(`${missing} are SENT and were never mailed`);
  if (sent + unknown !== recipients) problems.push(`of ${recipients} recipients ${JSON.stringify(others)} are neither`);
  if (mismatch || reserved !== 0) problems.push(`${reserved} credits are still reserved`);
  return {
    row: {
      "killed after mails": received,
      "at mails/s": round(rate),
      unknown,
      "may be": allowed,
      "of them mailed": unknownMailed,
      "mailed twice": stats.duplicates,
      missing,
      "silent s": round(silentSeconds, 1),
    },
    problems,
  };
}

const sendRow = z.object({ id: z.string(), status: z.string() });

async function readSendOf({ em, newsletterId }: Sender) {
  const row = await kysely(em)
    .selectFrom("sends")
    .select(["id", "status"])
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

/** The sums that do not add up at the end of a send. */
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
