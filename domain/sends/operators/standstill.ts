import { sql } from "kysely";
import { type EntityManager, kysely } from "../../../db/orm.ts";
import { hasWaitingRows } from "./overview.ts";

/**
 * `account`: refused by its server, not ACTIVE, or gone; `limit`: its hourly or daily limit is used up; `other`:
 * anything else.
 */
export const STANDSTILL_CAUSES = ["account", "limit", "other"] as const;
export type StandstillCause = (typeof STANDSTILL_CAUSES)[number];

/**
 * For how many seconds a send of any team has stood still: the longest by cause, 0 where none does. SENDING without a
 * mail although some recipient is due; SCHEDULED after its send_at; CANCELLED or FAILED and not settled. May be a slice
 * too long.
 */
export async function standstillSeconds(em: EntityManager): Promise<Record<StandstillCause, number>> {
  const { rows } = await sql<{ cause: StandstillCause; seconds: number }>`
    with sending as (
      select s.id, ${hasWaitingRows} as queued, (
          select min(r.retry_at) from send_recipients r where r.send_id = s.id and r.retry_at is not null) as retry_at,
        greatest(s.updated_at, (
          select max(r.updated_at) from send_lanes l join send_recipients r on r.send_id = l.send_id and r.seq = l.after_seq
          where l.send_id = s.id)) as advanced_at
      from sends s where s.status = 'SENDING'
    ), still as (
      select id, case when queued or retry_at is null then advanced_at else greatest(advanced_at, retry_at) end as since
      from sending
      union all
      select id, greatest(send_at, updated_at) from sends where status = 'SCHEDULED'
      union all
      select id, updated_at from sends where status in ('CANCELLED', 'FAILED') and settled_at is null
    ), caused as (
      select since, case
        when exists (
          select from send_lanes l left join email_accounts a on a.id = l.account_id
            left join account_refusals f on f.account_id = l.account_id
          where l.send_id = still.id and (a.id is null or a.status <> 'ACTIVE' or f.account_id is not null)) then 'account'
        when exists (
          select from send_lanes l join email_accounts a on a.id = l.account_id
            join account_usage u on u.account_id = a.id
          where l.send_id = still.id
            and (u.window = 'HOUR' and u.starts_at = date_trunc('hour', clock_timestamp(), 'UTC') and u.used >= a.hourly_limit
              or u.window = 'DAY' and u.starts_at = date_trunc('day', clock_timestamp(), 'UTC') and u.used >= a.daily_limit)
          ) then 'limit'
        else 'other' end as cause
      from still where since < clock_timestamp()
    )
    select cause, extract(epoch from clock_timestamp() - min(since))::float8 as seconds from caused group by cause`.execute(
    kysely(em),
  );
  const seconds = new Map(rows.map((row) => [row.cause, row.seconds]));
  return Object.fromEntries(STANDSTILL_CAUSES.map((cause) => [cause, seconds.get(cause) ?? 0])) as Record<
    StandstillCause,
    number
  >;
}
