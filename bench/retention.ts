import { setTimeout as delay } from "node:timers/promises";
import type { ScheduleHandle } from "@temporalio/client";
import { sql } from "kysely";
import type { LedgerState } from "../db/entities/send.ts";
import { type EntityManager, kysely } from "../db/orm.ts";
import { newId } from "../domain/ids.ts";
import { makeTeam, openStackDatabase } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { RETENTION_ID } from "../workflows/ids.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";
import { measureSends, type SendOptions } from "./send.ts";

export interface RetentionOptions extends StackChoice {
  /** Rows of old ledgers. */
  rows: number;
  /** Recipients of each of these sends. */
  recipients: number;
  /** Pairs of sends, alone and beside pruning, that are measured in each phase. */
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

/** How ledgers are shortened. */
interface Phase {
  phase: string;
  /** Days since the end of their sends. */
  days: number;
  /** The states of a ledger meanwhile, and afterwards. */
  during: LedgerState;
  done: LedgerState;
}

const PHASES: readonly Phase[] = [
  { phase: "names and custom fields", days: 100, during: "COMPLETE", done: "NAMELESS" },
  { phase: "rows and responses", days: 500, during: "DELETING", done: "SWEEPING" },
];

/** The rate of a send beside the pruning of old ledgers, as a share of its rate without, in pairs of sends. */
export function benchRetention(options: RetentionOptions): Promise<BenchReport> {
  const { rows, recipients, repeat } = options;
  return withStack(options, async () => {
    const { team } = await makeTeam();
    const orm = await openStackDatabase("owner");
    const temporal = await temporalClient();
    const retention = temporal.client.schedule.getHandle(RETENTION_ID);
    try {
      const em = orm.em.fork();
      const written = await timed(() => writeLedgers(em, team.id, rows));
      // Only the runs that are triggered here.
      await retention.pause();
      const problems: string[] = [];
      const measure = async (beside?: SendOptions["beside"]): Promise<number> => {
        const result = await measureSends({
          ...{ recipients: [recipients], latencyMs: 0, connections: 100, accounts: 1, repeat: 1, previews: 1 },
          ...{ catcher: false, kill: false, tracking: false, brief: true },
          ...(beside && { beside }),
        });
        problems.push(...result.problems);
        return Number(result.tables["Rates"]?.[0]?.[RATE]);
      };
      const pairs: (Row & { phase: string; share: number })[] = [];
      const ends: Row[] = [];
      for (const each of PHASES) {
        const { phase, days, done } = each;
        for (let pair = 1; pair <= repeat; pair++) {
          let pruned = 0;
          const pruning = async () => {
            const [before, since] = [await progress(em, team.id, each), performance.now()];
            const stop = await beginPruning(em, team.id, days, retention);
            return async () => {
              pruned = ((await progress(em, team.id, each)) - before) / ((performance.now() - since) / 1_000);
              if (await isDone(em, team.id, done)) problems.push(`${phase}: all are done; give more --rows`);
              await stop();
            };
          };
          const rates = { alone: Number.NaN, beside: Number.NaN };
          // The order alternates, so that both are equally affected by growth over the sends.
          const order = pair % 2 === 1 ? (["alone", "beside"] as const) : (["beside", "alone"] as const);
          for (const which of order) rates[which] = await measure(which === "beside" ? pruning : undefined);
          pairs.push({
            phase,
            pair,
            "alone, mails/s": round(rates.alone),
            "beside, mails/s": round(rates.beside),
            "rows pruned/s": round(pruned),
            share: round(rates.beside / rates.alone, 3),
          });
        }
        const before = await progress(em, team.id, each);
        const stop = await beginPruning(em, team.id, days, retention);
        const { ms } = await timed(async () => {
          while (!(await isDone(em, team.id, done))) await delay(500);
        });
        await stop();
        ends.push({ phase, "rows/s without a send": round((rows - before) / (ms / 1_000)), ...(await sizeOf(em)) });
      }
      const shares = PHASES.map(({ phase }) => ({
        phase,
        share: round(median(pairs.filter((pair) => pair.phase === phase).map(({ share }) => share)), 3),
      }));
      return {
        bench: "retention",
        options: { rows, recipients, repeat },
        tables: {
          "Rate of a send beside pruning, as a share of its rate alone, medians of pairs": shares,
          "Each pair": pairs,
          [`The rest without a send; the rows were written in ${round(written.ms / 1_000)} s`]: ends,
        },
        problems: [
          ...problems,
          ...shares.flatMap(({ phase, share }) =>
            share < LEAST_SHARE ? [`beside the pruning of ${phase} a send keeps ${share} of its rate`] : [],
          ),
        ],
      };
    } finally {
      await retention.unpause();
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

/**
 * Makes the old sends due, and has one run follow the other.
 * @returns makes them due no more, which ends the run
 */
async function beginPruning(
  em: EntityManager,
  teamId: string,
  days: number,
  retention: ScheduleHandle,
): Promise<() => Promise<void>> {
  await endDaysAgo(em, teamId, days);
  const stop = new AbortController();
  const triggering = (async () => {
    while (!stop.signal.aborted) {
      await retention.trigger();
      await delay(TRIGGER_EVERY_MS, undefined, { signal: stop.signal }).catch(() => undefined);
    }
  })();
  return async () => {
    stop.abort();
    await triggering;
    await endDaysAgo(em, teamId, 0);
  };
}

/** Rows that a phase has shortened. */
async function progress(em: EntityManager, teamId: string, { done, during }: Phase): Promise<number> {
  const { rows } = await sql<{ rows: number }>`
    select sum(case ledger_state when ${done} then recipients when ${during} then pruned_seq else 0 end)::int as rows
    from sends where team_id = ${teamId}`.execute(kysely(em));
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
