import { sql } from "kysely";
import { SEND_STATUSES, type SendStatus } from "../../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../../db/orm.ts";
import { PAUSE_REASONS } from "../pause-reasons.ts";

/** What paused a send: a command of a client or an operator, or a failure. */
const PAUSE_CAUSES = ["client", "failure", "operator"] as const;
type PauseCause = (typeof PAUSE_CAUSES)[number];

export interface SendsOverview {
  /** 0 included. */
  byStatus: Record<SendStatus, number>;
  /**
   * Sends that a failure paused until an operator resumes them, by its code; `several_accounts` where each account has
   * failed.
   */
  needingOperator: Record<string, number>;
  reviewsOpen: number;
  /** For which the recipient that has waited longest could have been mailed; 0 when none waits. */
  queueAgeSeconds: number;
  /** Of the send that has been paused the longest; 0 where none is. */
  pausedSeconds: Record<PauseCause, number>;
}

/** Only the last rows are searched for a QUEUED one: a send is mailed in their order. */
const LAST_ROWS = 500;

/** SQL: of a row of `sends s`. */
export const hasWaitingRows = sql<boolean>`exists (
  select 1 from (
    select r.state from send_recipients r where r.send_id = s.id order by r.seq desc limit ${sql.lit(LAST_ROWS)}
  ) l where l.state = 'QUEUED')`;

/**
 * A QUEUED recipient waits since its send started or was resumed, a DEFERRED one since its retry fell due after that: a
 * pause does not count.
 */
export async function overviewSends(em: EntityManager): Promise<SendsOverview> {
  const db = kysely(em);
  // A reason that names several accounts holds their ids.
  const { rows: counts } = await sql<{ status: SendStatus; reason: string | null; count: number; reviews: number }>`
    select status, case when status = 'PAUSED' and pause_reason ~ '^\\w+$' then pause_reason
        when status = 'PAUSED' and pause_reason is not null then 'several_accounts' end as reason,
      count(*)::int as count, count(*) filter (where review_until > now())::int as reviews
    from sends group by 1, 2`.execute(db);
  const { rows: ages } = await sql<{ seconds: number }>`
    select greatest(extract(epoch from clock_timestamp() - min(w.since)), 0)::float8 as seconds
    from sends s cross join lateral (
      select s.updated_at as since
      where ${hasWaitingRows}
      union all
      select greatest(min(r.retry_at), s.updated_at) from send_recipients r where r.send_id = s.id and r.retry_at <= clock_timestamp()
      having min(r.retry_at) is not null
    ) w
    where s.status = 'SENDING'`.execute(db);
  const { rows: pauses } = await sql<{ cause: PauseCause; seconds: number }>`
    select case when pause_reason is null then 'operator' when pause_reason = ${PAUSE_REASONS.client} then 'client'
        else 'failure' end as cause, extract(epoch from clock_timestamp() - min(updated_at))::float8 as seconds
    from sends where status = 'PAUSED' group by 1`.execute(db);
  const pausedSeconds = Object.fromEntries(PAUSE_CAUSES.map((cause) => [cause, 0])) as Record<PauseCause, number>;
  for (const { cause, seconds } of pauses) pausedSeconds[cause] = seconds;
  const byStatus = Object.fromEntries(SEND_STATUSES.map((status) => [status, 0])) as Record<SendStatus, number>;
  const needingOperator: Record<string, number> = { [PAUSE_REASONS.complaints]: 0, several_accounts: 0 };
  for (const { status, reason, count } of counts) {
    byStatus[status] += count;
    if (reason !== null && reason !== PAUSE_REASONS.client) needingOperator[reason] = count;
  }
  return {
    byStatus,
    needingOperator,
    reviewsOpen: counts.reduce((sum, { reviews }) => sum + reviews, 0),
    queueAgeSeconds: ages[0]?.seconds ?? 0,
    pausedSeconds,
  };
}

/**
 * Waiting or SENDING recipients of ended sends: only those of a cancel that is not settled; others would never be
 * mailed.
 */
export async function countOpenInEndedSends(em: EntityManager): Promise<number> {
  const { rows } = await sql<{ open: number }>`
    select coalesce(sum(s.recipients + coalesce(c.change, 0)), 0)::float8 as open
    from sends s left join (
      select send_id, sum(count) as change from send_counts where state in ('QUEUED', 'SENDING', 'DEFERRED') group by send_id
    ) c on c.send_id = s.id
    where s.status in ('SENT', 'CANCELLED', 'FAILED')`.execute(kysely(em));
  return rows[0]?.open ?? 0;
}
