import { sql } from "kysely";
import { SEND_STATUSES, type SendStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** Numbers about the sends of all teams. */
export interface SendsOverview {
  /** Number of sends per status; every status is present. */
  byStatus: Record<SendStatus, number>;
  /** Sends that a failure paused; only an operator can resume them. */
  needingOperator: number;
  /** Seconds for which the longest waiting recipient could have been mailed; 0 when none waits. */
  queueAgeSeconds: number;
}

/**
 * Number of a send's last rows that are searched for a QUEUED one. A send is mailed in the order of its rows, so
 * waiting rows are at the end; a walk over all rows would take too long for a large send.
 */
const LAST_ROWS = 500;

/**
 * Reads the numbers for all teams. A QUEUED recipient waits since its send started, a DEFERRED one since its retry
 * was due.
 */
export async function overviewSends(em: EntityManager): Promise<SendsOverview> {
  const db = kysely(em);
  const { rows: counts } = await sql<{ status: SendStatus; count: number; troubled: number }>`
    select status, count(*)::int as count, count(*) filter (where status = 'PAUSED' and trouble is not null)::int as troubled
    from sends group by status`.execute(db);
  const { rows: ages } = await sql<{ seconds: number }>`
    select greatest(extract(epoch from clock_timestamp() - min(w.since)), 0)::float8 as seconds
    from sends s cross join lateral (
      select s.started_at as since
      where exists (
        select 1 from (
          select r.state from send_recipients r where r.send_id = s.id order by r.seq desc limit ${sql.lit(LAST_ROWS)}
        ) l where l.state = 'QUEUED')
      union all
      select min(r.retry_at) from send_recipients r where r.send_id = s.id and r.retry_at <= clock_timestamp()
    ) w
    where s.status = 'SENDING'`.execute(db);
  const byStatus = Object.fromEntries(SEND_STATUSES.map((status) => [status, 0])) as Record<SendStatus, number>;
  for (const { status, count } of counts) byStatus[status] = count;
  return {
    byStatus,
    needingOperator: counts.reduce((sum, { troubled }) => sum + troubled, 0),
    queueAgeSeconds: ages[0]?.seconds ?? 0,
  };
}
