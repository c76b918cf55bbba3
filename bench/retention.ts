import { setTimeout as delay } from "node:timers/promises";
import type { ScheduleHandle } from "@temporalio/client";
import { type RawBuilder, sql } from "kysely";
import type { LedgerState } from "../db/entities/send.ts";
import { type EntityManager, kysely } from "../db/orm.ts";
import { newId } from "../domain/ids.ts";
import { RETENTION_ID } from "../temporal/ids.ts";
import { makeTeam, openStackDatabase } from "../test/support/factories.ts";
import { type StackChoice, withStack } from "../test/support/own-stack.ts";
import { temporalClient } from "../test/support/temporal.ts";
import { type BenchReport, median, type Row, round, timed } from "./report.ts";
import { measureSends, type SendOptions } from "./send.ts";

export interface RetentionOptions extends StackChoice {
  /** Rows of old ledgers. */
  rows: number;
  /** Recipients of each of these sends. */
  recipients: number;
  /** Pairs of sends, alone and beside pruning, that count in each phase. */
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
/** While other processes use more than so many per cent of a core, a further pair is measured. */
const CALM_PERCENT = 40;
/** Pairs that a phase measures at most, as a multiple of those that count. */
const MOST_PAIRS = 2;
/** The tables that pruning shortens. */
const TABLES = ["send_recipients", "engagements", "mail_reports"] as const;

/** How ledgers are shortened. */
interface Phase {
  phase: string;
  /** Days since the end of their sends. */
  days: number;
  /** The states of a ledger meanwhile, and afterwards. */
  during: LedgerState;
  done: LedgerState;
  /** SQL: the rows of a table that are left to shorten. */
  left: Partial<Record<(typeof TABLES)[number], RawBuilder<unknown>>>;
}

const PHASES: readonly Phase[] = [
  {
    ...{ phase: "names and custom fields", days: 100, during: "COMPLETE", done: "NAMELESS" },
    left: { send_recipients: sql`first_name is not null or last_name is not null or fields is not null` },
  },
  {
    ...{ phase: "rows and responses", days: 500, during: "DELETING", done: "SWEEPING" },
    left: { send_recipients: sql`true`, engagements: sql`true`, mail_reports: sql`true` },
  },
];

/** One send that was measured. */
interface MeasuredSend {
  /** Mails in a second. */
  rate: number;
  /** How much of the machine others used meanwhile, in per cent of a core. */
  others: number;
}

/** A send alone and one beside pruning, one after the other. */
interface Pair {
  alone: MeasuredSend;
  beside: MeasuredSend;
  /** Rows that were pruned in a second. */
  pruned: number;
}

const shareOf = ({ alone, beside }: Pair): number => beside.rate / alone.rate;
const othersOf = ({ alone, beside }: Pair): number => Math.max(alone.others, beside.others);

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
      const measure = async (beside?: SendOptions["beside"]): Promise<MeasuredSend> => {
        const result = await measureSends({
          ...{ recipients: [recipients], latencyMs: 0, connections: 100, accounts: 1, repeat: 1, previews: 1 },
          ...{ kill: false, tracking: false, consent: false, brief: true },
          ...(beside && { beside }),
        });
        problems.push(...result.problems);
        const figure = (table: string, column: string) => Number(result.tables[table]?.[0]?.[column]);
        return {
          rate: figure("Rates", "mails/s, first to last"),
          others: figure("CPU seconds per 10,000 mails", "others, % of a core"),
        };
      };
      const measureAlone = async (): Promise<MeasuredSend> => {
        // The vacuum after a pruning is a part of its cost, not of the rate without it.
        await vacuum(em);
        return measure();
      };
      const measureBeside = async (each: Phase): Promise<Pick<Pair, "beside" | "pruned">> => {
        let pruned = 0;
        const beside = await measure(async () => {
          const [before, since] = [await progress(em, team.id, each), performance.now()];
          const stop = await beginPruning(em, team.id, each.days, retention);
          return async () => {
            pruned = ((await progress(em, team.id, each)) - before) / ((performance.now() - since) / 1_000);
            if (pruned === 0) problems.push(`${each.phase}: nothing was pruned beside a send`);
            if (await isDone(em, team.id, each.done)) problems.push(`${each.phase}: all are done; give more --rows`);
            await stop();
          };
        });
        return { beside, pruned };
      };
      const tables: { shares: Row[]; pairs: Row[]; ends: Row[] } = { shares: [], pairs: [], ends: [] };
      for (const each of PHASES) {
        const { phase, days, done } = each;
        const pairs: Pair[] = [];
        const calm = () => pairs.filter((pair) => othersOf(pair) <= CALM_PERCENT).length;
        while (pairs.length < repeat * MOST_PAIRS && calm() < repeat) {
          // The order alternates, so that both are equally affected by growth over the sends.
          if (pairs.length % 2 === 0) {
            const alone = await measureAlone();
            pairs.push({ alone, ...(await measureBeside(each)) });
          } else {
            const beside = await measureBeside(each);
            pairs.push({ alone: await measureAlone(), ...beside });
          }
        }
        // Chosen by the load of others alone, not by their shares.
        const counted = pairs.toSorted((one, other) => othersOf(one) - othersOf(other)).slice(0, repeat);
        const share = round(median(counted.map(shareOf)), 3);
        tables.shares.push({ phase, share });
        if (share < LEAST_SHARE) problems.push(`beside the pruning of ${phase} a send keeps ${share} of its rate`);
        for (const [i, pair] of pairs.entries()) {
          tables.pairs.push({
            phase,
            pair: i + 1,
            "alone, mails/s": round(pair.alone.rate),
            "beside, mails/s": round(pair.beside.rate),
            "rows pruned/s": round(pair.pruned),
            "others, % of a core": othersOf(pair),
            share: round(shareOf(pair), 3),
            counts: counted.includes(pair),
          });
        }
        const before = await progress(em, team.id, each);
        const stop = await beginPruning(em, team.id, days, retention);
        const { ms } = await timed(async () => {
          while (!(await isDone(em, team.id, done))) await delay(500);
        });
        await stop();
        problems.push(...(await findLeft(em, team.id, each)));
        tables.ends.push({
          phase,
          "rows/s without a send": round((rows - before) / (ms / 1_000)),
          ...(await sizeOf(em)),
        });
      }
      return {
        bench: "retention",
        options: { rows, recipients, repeat },
        tables: {
          "Rate of a send beside pruning, as a share of its rate alone, medians of pairs": tables.shares,
          [`Each pair; of more than ${repeat} those count in which others used least`]: tables.pairs,
          [`The rest without a send; the rows were written in ${round(written.ms / 1_000)} s`]: tables.ends,
        },
        problems,
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
  const withTriggers = ["engagements", "mail_reports"] as const;
  for (const table of withTriggers) await sql`alter table ${sql.table(table)} disable trigger user`.execute(db);
  for (let left = rows; left > 0; left -= ROWS_PER_SEND) {
    const recipients = Math.min(left, ROWS_PER_SEND);
    const id = newId("send");
    await sql`
      insert into sends (id, team_id, environment, resource_type, resource_id, api_key_id, status, recipients,
        send_at, settled_at, completed_at)
      values (${id}, ${teamId}, 'LIVE', 'newsletter', 'nl_x', 'key_x', 'SENT', ${recipients}, now(), now(),
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
  for (const table of withTriggers) await sql`alter table ${sql.table(table)} enable trigger user`.execute(db);
}

/** Vacuums what is pruned, without the pauses of autovacuum, which ends its own vacuum for this one. */
async function vacuum(em: EntityManager): Promise<void> {
  for (const table of TABLES) await sql`vacuum analyze ${sql.table(table)}`.execute(kysely(em));
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

/** Rows that a phase which has ended did not shorten. */
async function findLeft(em: EntityManager, teamId: string, { phase, left }: Phase): Promise<string[]> {
  const found: string[] = [];
  for (const [table, condition] of Object.entries(left)) {
    const { rows } = await sql`
      select from ${sql.table(table)} r join sends s on s.id = r.send_id
      where s.team_id = ${teamId} and (${condition}) limit 1`.execute(kysely(em));
    if (rows.length > 0) found.push(`${phase}: a row of ${table} is left`);
  }
  return found;
}

/** The size of the ledger on the disk, and what vacuums have left. */
async function sizeOf(em: EntityManager): Promise<Row> {
  const { rows } = await sql<{ mib: number; dead: number; vacuums: number }>`
    select round(pg_total_relation_size(relid) / 1048576.0)::int as mib, n_dead_tup::int as dead, autovacuum_count::int as vacuums
    from pg_stat_user_tables where relname = 'send_recipients'`.execute(kysely(em));
  const [{ mib, dead, vacuums } = { mib: 0, dead: 0, vacuums: 0 }] = rows;
  return { "ledger MiB": mib, "dead rows": dead, autovacuums: vacuums };
}
