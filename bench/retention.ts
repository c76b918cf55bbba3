import { setTimeout as delay } from "node:timers/promises";
import { sql } from "kysely";
import type { LedgerState } from "../db/entities/send.ts";
import { type EntityManager, kysely } from "../db/orm.ts";
import { newId } from "../domain/ids.ts";
import { makeTeam, openStackDatabase } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { RETENTION_ID } from "../workflows/ids.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";
import { measureSends } from "./send.ts";

export interface RetentionOptions extends StackChoice {
  /** Rows of old ledgers. */
  rows: number;
  /** Recipients of each send that is measured. */
  recipients: number;
  /** Sends that are measured in each phase. */
  repeat: number;
}

/** A send beside pruning keeps this share of its rate, at least. */
const LEAST_SHARE = 0.9;
/** Recipients of each old send at most. */
const ROWS_PER_SEND = 1_000_000;
/** Rows that one statement writes. */
const ROWS_PER_INSERT = 100_000;
/** Responses come to one in so many mails: opens, and bounces. */
const EVERY = { open: 5, bounce: 100 };
const TRIGGER_EVERY_MS = 2_000;
const RATE = "mails/s, first to last";

/** How the ledgers are shortened: by the days since the end of their sends, and the state in which that leaves them. */
const PHASES = [
  { phase: "names and custom fields", days: 100, done: "NAMELESS" },
  { phase: "rows and responses", days: 500, done: "SWEEPING" },
] as const satisfies { phase: string; days: number; done: LedgerState }[];

/** The rate of a send beside the pruning of old ledgers, as a share of its rate without. */
export function benchRetention(options: RetentionOptions): Promise<BenchReport> {
  const { rows, recipients, repeat } = options;
  return withStack(options, async () => {
    const { team } = await makeTeam();
    const orm = await openStackDatabase("owner");
    const temporal = await temporalClient();
    try {
      const em = orm.em.fork();
      const written = await timed(() => writeLedgers(em, team.id, rows));
      const problems: string[] = [];
      const measured: Row[] = [];
      const rates: number[] = [];
      /** Measures sends one after the other. @returns the rates */
      const measure = async (beside: string): Promise<number[]> => {
        const found: number[] = [];
        for (let run = 1; run <= repeat; run++) {
          const before = await progress(em, team.id);
          const { ms, result } = await timed(() =>
            measureSends({
              recipients: [recipients],
              latencyMs: 0,
              connections: 100,
              accounts: 1,
              repeat: 1,
              previews: 1,
              catcher: false,
              kill: false,
              tracking: false,
              brief: true,
            }),
          );
          const rate = Number(result.tables["Rates"]?.[0]?.[RATE]);
          const pruned = ((await progress(em, team.id)) - before) / (ms / 1_000);
          found.push(rate);
          measured.push({ beside, run, "mails/s": round(rate), "rows pruned/s": round(pruned) });
          problems.push(...result.problems);
        }
        return found;
      };
      rates.push(...(await measure("nothing")));
      const shortened: Row[] = [];
      const beside: { phase: string; rate: number }[] = [];
      for (const { phase, days, done } of PHASES) {
        await endDaysAgo(em, team.id, days);
        const stop = new AbortController();
        const triggering = keepTriggering(temporal.client, stop.signal);
        beside.push({ phase, rate: median(await measure(phase)) });
        if (await isDone(em, team.id, done)) problems.push(`${phase}: done before the sends were; give more --rows`);
        const before = await progress(em, team.id);
        const { ms } = await timed(async () => {
          while (!(await isDone(em, team.id, done))) await delay(500);
        });
        stop.abort();
        await triggering;
        shortened.push({
          phase,
          "rows/s without a send": round((rows - before) / (ms / 1_000)),
          ...(await sizeOf(em)),
        });
        rates.push(...(await measure("nothing")));
      }
      const alone = median(rates);
      const shares = beside.map(({ phase, rate }) => ({
        phase,
        "mails/s": round(rate),
        share: round(rate / alone, 3),
      }));
      return {
        bench: "retention",
        options: { rows, recipients, repeat },
        tables: {
          "Rate of a send beside pruning, as a share of its rate alone, medians": [
            { phase: "alone", "mails/s": round(alone), share: 1 },
            ...shares,
          ],
          "Each send": measured,
          [`Pruning; the rows were written in ${round(written.ms / 1_000)} s`]: shortened,
        },
        problems: [
          ...problems,
          ...shares.flatMap(({ phase, share }) =>
            share < LEAST_SHARE ? [`beside the pruning of ${phase} a send keeps ${share} of its rate`] : [],
          ),
        ],
      };
    } finally {
      await temporal.close();
      await orm.close(true);
    }
  });
}

/** Writes sends that ended just now, with their ledgers and some responses. */
async function writeLedgers(em: EntityManager, teamId: string, rows: number): Promise<void> {
  const db = kysely(em);
  const tables = ["engagements", "mail_reports"] as const;
  for (const table of tables) await sql`alter table ${sql.table(table)} disable trigger user`.execute(db);
  for (let left = rows; left > 0; left -= ROWS_PER_SEND) {
    const recipients = Math.min(left, ROWS_PER_SEND);
    const id = newId("send");
    await sql`
      insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients, credits_reserved,
        cap_limit, cap_used_today, send_at, settled_at, completed_at)
      values (${id}, ${teamId}, 'LIVE', 'newsletter', 'nl_x', 'key_x', 'SENT', ${recipients}, ${recipients}, 1, 0, now(), now(),
        now())`.execute(db);
    for (let after = 0; after < recipients; after += ROWS_PER_INSERT) {
      const range = sql`generate_series(${after + 1}::int, ${Math.min(after + ROWS_PER_INSERT, recipients)}::int) i`;
      await sql`
        insert into send_recipients (send_id, seq, member_id, email, first_name, last_name, state, attempts)
        select ${id}, i, 'sub_01m7zh34n8e49vnbt7e64rvp0c', 'person' || i || '@example.com', 'First' || i, 'Last' || i, 'SENT', 1
        from ${range}`.execute(db);
      await sql`
        insert into engagements (send_id, seq, kind, team_id, environment, resource_id, email, count, first_at, last_at)
        select ${id}, i, 'opened', ${teamId}, 'LIVE', 'nl_x', 'person' || i || '@example.com', 1, now(), now()
        from ${range} where i % ${EVERY.open} = 0`.execute(db);
      await sql`
        insert into mail_reports (send_id, seq, kind, team_id, environment)
        select ${id}, i, 'bounce:soft', ${teamId}, 'LIVE' from ${range} where i % ${EVERY.bounce} = 0`.execute(db);
    }
  }
  for (const table of tables) await sql`alter table ${sql.table(table)} enable trigger user`.execute(db);
  for (const table of ["send_recipients", ...tables]) await sql`vacuum analyze ${sql.table(table)}`.execute(db);
}

const endDaysAgo = (em: EntityManager, teamId: string, days: number) =>
  sql`update sends set completed_at = now() - make_interval(days => ${days}::int) where team_id = ${teamId}`.execute(
    kysely(em),
  );

/** Has one run follow the other, without the wait for the next minute. */
async function keepTriggering(
  { schedule }: Awaited<ReturnType<typeof temporalClient>>["client"],
  stop: AbortSignal,
): Promise<void> {
  while (!stop.aborted) {
    await schedule.getHandle(RETENTION_ID).trigger();
    await delay(TRIGGER_EVERY_MS, undefined, { signal: stop }).catch(() => undefined);
  }
}

/** Rows that the present phase has shortened. */
async function progress(em: EntityManager, teamId: string): Promise<number> {
  const { rows } = await sql<{ rows: number }>`
    select coalesce(sum(case when ledger_state in ('NAMELESS', 'SWEEPING') then recipients else pruned_seq end), 0)::int as rows
    from sends where team_id = ${teamId} and (ledger_state <> 'NAMELESS' or completed_at > now() - interval '400 days')`.execute(
    kysely(em),
  );
  return rows[0]?.rows ?? 0;
}

async function isDone(em: EntityManager, teamId: string, done: LedgerState): Promise<boolean> {
  const { rows } = await sql`select from sends where team_id = ${teamId} and ledger_state <> ${done} limit 1`.execute(
    kysely(em),
  );
  return rows.length === 0;
}

/** The size of the ledger on the disk, and what vacuums have left. */
async function sizeOf(em: EntityManager): Promise<Row> {
  const { rows } = await sql<{ mib: number; dead: number; vacuums: number }>`
    select round(pg_total_relation_size(relid) / 1048576.0)::int as mib, n_dead_tup::int as dead, autovacuum_count::int as vacuums
    from pg_stat_user_tables where relname = 'send_recipients'`.execute(kysely(em));
  const [{ mib, dead, vacuums } = { mib: 0, dead: 0, vacuums: 0 }] = rows;
  return { "ledger MiB": mib, "dead rows": dead, autovacuums: vacuums };
}
