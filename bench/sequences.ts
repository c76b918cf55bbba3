import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import { kysely } from "../db/orm.ts";
import { ID_PREFIX } from "../domain/ids.ts";
import { eventually } from "../test/support/eventually.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { pidsOf } from "../test/support/processes.ts";
import { confirm, type Sender, tokenOf, untilStatus } from "../test/support/sending.ts";
import { makeSequence, step } from "../test/support/sequences.ts";
import { BODY, makeAudience, SUBJECT } from "./audience.ts";
import { usage } from "./processes.ts";
import { type BenchReport, quantile, type Row, round } from "./report.ts";
import { type Sink, startSink } from "./smtp-sink.ts";

export interface SequenceBenchOptions extends StackChoice {
  /** For so long one person a second confirms a subscription. */
  seconds: number;
  /** People who are due at once, of so many who are enrolled. */
  due: number;
  enrolled: number;
  /** Active sequences with nothing due. */
  idle: number;
  idleSeconds: number;
}

const PROCESSES = ["api", "sends", "dispatch", "maintenance", "webhooks", "postgres", "temporal"] as const;
const LOOK_MS = 50;
const CONNECTIONS = 100;
/** Seconds. */
const WELCOME_BARS = { p50: 5, p95: 15 };
const RATE_BAR = 0.85;
const IDLE_BAR_PERCENT = 3;

/** Sequences: how soon a welcome mail comes, how fast those who are due are mailed, and what sequences cost that wait. */
export function benchSequences(options: SequenceBenchOptions): Promise<BenchReport> {
  return withStack(options, async () => {
    const sink = await startSink();
    try {
      const welcome = options.seconds > 0 ? await measureWelcome(sink, options) : undefined;
      const rate = options.due > 0 ? await measureDue(sink, options) : undefined;
      const idle = options.idle > 0 ? await measureIdle(sink, options) : undefined;
      const { seconds, due, enrolled, idle: sequences } = options;
      return {
        bench: "sequences",
        options: { seconds, due, enrolled, idle: sequences },
        tables: {
          ...(welcome && { "From a confirmed subscription to the welcome mail, s": [welcome.row] }),
          ...(rate && { "Those who are due beside a newsletter": [rate.row] }),
          ...(idle && { "Sequences that wait, % of a core": [idle.row] }),
        },
        problems: [welcome, rate, idle].flatMap((part) => part?.problems ?? []),
      };
    } finally {
      sink.close();
    }
  });
}

const oneStep = () => [step("welcome", { wait_minutes: 0, subject: SUBJECT, body: BODY })];

interface Part {
  row: Row;
  problems: string[];
}

async function measureWelcome(sink: Sink, { seconds }: SequenceBenchOptions): Promise<Part> {
  await sink.clear();
  const sender = await makeAudience({ recipients: 0, connections: CONNECTIONS, smtp: sink });
  await makeSequence(sender, { steps: oneStep() });
  const measured = pidsOf(PROCESSES);
  const before = usage(measured);
  const waiting = new Map<string, number>();
  const took: number[] = [];
  const beganAt = performance.now();
  for (let n = 0; n < seconds || waiting.size > 0; ) {
    if (n < seconds && performance.now() - beganAt >= n * 1_000) {
      const email = `welcome${n++}@${sender.audience}`;
      const { body } = await sender.client.post("/subscribers", { email });
      await sender.client.post(`/lists/${sender.listId}/subscribers`, { subscriber_ids: [body.data.id] });
      waiting.set(email, performance.now());
    }
    for (const [email, at] of waiting) {
      if ((await sink.reached([email])) === 0) continue;
      took.push((performance.now() - at) / 1_000);
      waiting.delete(email);
    }
    if (performance.now() - beganAt > (seconds + 120) * 1_000) break;
    await delay(LOOK_MS);
  }
  const wall = (performance.now() - beganAt) / 1_000;
  const after = usage(measured);
  took.sort((a, b) => a - b);
  const { duplicates } = await sink.stats();
  const [p50, p95] = [quantile(took, 0.5), quantile(took, 0.95)];
  return {
    row: {
      people: seconds,
      p50: round(p50, 2),
      p95: round(p95, 2),
      max: round(took.at(-1) ?? Number.NaN, 2),
      "CPU, % of a core": round((spent(before, after) / wall) * 100),
    },
    problems: [
      ...(waiting.size > 0 ? [`${waiting.size} people got no mail`] : []),
      ...(duplicates > 0 ? [`${duplicates} mails came again`] : []),
      ...(p50 < WELCOME_BARS.p50 && p95 < WELCOME_BARS.p95 ? [] : [`p50 ${round(p50, 1)} s, p95 ${round(p95, 1)} s`]),
    ],
  };
}

const spent = (before: ReturnType<typeof usage>, after: ReturnType<typeof usage>): number =>
  Object.keys(after).reduce((sum, name) => sum + (after[name]?.cpuSeconds ?? 0) - (before[name]?.cpuSeconds ?? 0), 0);

async function measureDue(sink: Sink, { due, enrolled }: SequenceBenchOptions): Promise<Part> {
  const sender = await makeAudience({ recipients: due, connections: CONNECTIONS, smtp: sink });
  await sink.clear();
  const token = await tokenOf(sender);
  const beganAt = Date.now();
  await confirm(sender, token);
  await untilStatus(sender, ["SENT"], 600_000);
  const newsletter = await rateSince(sink, due, beganAt);

  const id = await makeSequence(sender, { steps: oneStep(), isStarted: false });
  await enrolStraight(sender, id, due, enrolled);
  await sink.clear();
  const startedAt = Date.now();
  await sql`update campaigns set status = 'ACTIVE' where id = ${id}`.execute(kysely(sender.em));
  await sql`insert into sequence_wakes (campaign_id) values (${id})`.execute(kysely(sender.em));
  await eventually(async () => (await sink.stats()).received >= due, { what: "all mails", withinMs: 600_000 });
  const sequence = await rateSince(sink, due, startedAt);
  const { duplicates } = await sink.stats();
  const share = sequence.rate / newsletter.rate;
  return {
    row: {
      due,
      enrolled,
      "newsletter, mails/s": round(newsletter.rate),
      "sequence, mails/s": round(sequence.rate),
      share: round(share, 2),
      "newsletter, from the confirm s": round(newsletter.seconds, 1),
      "sequence, from its start s": round(sequence.seconds, 1),
    },
    problems: [
      ...(share < RATE_BAR ? [`a sequence has ${round(share, 2)} of a newsletter's rate`] : []),
      ...(duplicates > 0 ? [`${duplicates} mails came again`] : []),
    ],
  };
}

async function rateSince(sink: Sink, mails: number, beganAt: number): Promise<{ rate: number; seconds: number }> {
  const { firstAt, lastAt } = await sink.stats();
  return {
    rate: mails / (((lastAt ?? 0) - (firstAt ?? 0)) / 1_000),
    seconds: ((lastAt ?? 0) - beganAt) / 1_000,
  };
}

/** The sender's subscribers due now, and others who do not exist due in a year. */
async function enrolStraight({ em, listId, liveKey }: Sender, id: string, due: number, enrolled: number) {
  const db = kysely(em);
  await sql`
    insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at)
    select ${id}, subscriber_id, subscriber_id, 'ACTIVE', 'welcome', now() from subscriptions where list_id = ${listId}
    union all
    select ${id}, 'x' || i, ${`${ID_PREFIX.subscriber}_x`} || i, 'ACTIVE', 'welcome', now() + interval '1 year'
    from generate_series(1, ${enrolled - due}::int) i`.execute(db);
  await sql`update sequences set api_key_id = ${liveKey.record.id}, started_at = now(), members_noted_at = now(), swept_all_at = now()
    where campaign_id = ${id}`.execute(db);
  await sql`checkpoint`.execute(db);
  await sql`vacuum analyze sequence_enrolments`.execute(db);
}

async function measureIdle(sink: Sink, { idle, idleSeconds }: SequenceBenchOptions): Promise<Part> {
  const cost = async (seconds: number) => {
    const measured = pidsOf(PROCESSES);
    const before = usage(measured);
    await delay(seconds * 1_000);
    return (spent(before, usage(measured)) / seconds) * 100;
  };
  await delay(15_000);
  const without = await cost(idleSeconds);
  const sender = await makeAudience({ recipients: 0, connections: CONNECTIONS, smtp: sink });
  const first = await makeSequence(sender, { steps: oneStep(), isStarted: false });
  const db = kysely(sender.em);
  const made = async (table: string, key: string) =>
    sql`insert into ${sql.table(table)} select (jsonb_populate_record(t, jsonb_build_object(${key}::text, t.${sql.ref(key)} || '-' || i))).*
      from ${sql.table(table)} t, generate_series(1, ${idle - 1}::int) i where t.${sql.ref(key)} = ${first}`.execute(
      db,
    );
  await sql`update campaigns set status = 'ACTIVE' where id = ${first}`.execute(db);
  await sql`update sequences set api_key_id = ${sender.liveKey.record.id}, started_at = now(), members_noted_at = now()
    where campaign_id = ${first}`.execute(db);
  await made("campaigns", "id");
  await made("sequences", "campaign_id");
  await sql`insert into sequence_wakes (campaign_id) select campaign_id from sequences where team_id = ${sender.team.id}`.execute(
    db,
  );
  await eventually(async () => (await sql`select from sequence_wakes limit 1`.execute(db)).rows.length === 0, {
    what: "the sequences started",
    withinMs: 300_000,
  });
  // The first run of each workflow takes 35 ms of CPU, most of it Temporal's: those are not idle yet.
  while ((await cost(10)) > without + 2 * IDLE_BAR_PERCENT);
  const withThem = await cost(idleSeconds);
  const more = withThem - without;
  return {
    row: { sequences: idle, without: round(without, 1), with: round(withThem, 1), more: round(more, 1) },
    problems: more < IDLE_BAR_PERCENT ? [] : [`${idle} idle sequences cost ${round(more, 1)} % of a core`],
  };
}
