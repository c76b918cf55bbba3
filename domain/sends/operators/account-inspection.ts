import { sql } from "kysely";
import type { AccountProvider, AccountStatus } from "../../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { ApiError } from "../../errors.ts";
import { type AccountRefusal, refusalJson } from "./inspection.ts";

/** A sending account as operators read it at a command line. Instants are ISO 8601, UTC. */
export interface AccountFacts extends Tenant {
  id: string;
  email: string;
  provider: AccountProvider;
  status: AccountStatus;
  lastError: string | null;
  /** The server's reply that is the reason, without addresses. */
  lastReply: string | null;
  refusal: AccountRefusal | null;
  lastCheckedAt: string | null;
  nextCheckAt: string | null;
  host: string;
  port: number;
  maxConnections: number;
  connections: number;
  /** Null without a limit: then they are not counted. */
  hour: Usage | null;
  day: Usage | null;
  /** Ids of its sends that have not ended. */
  sends: string[];
}

interface Usage {
  used: number;
  limit: number;
}

export interface AccountFilter {
  id?: string;
  teamId?: string | undefined;
  /** Undefined for an operator. */
  tenant?: Tenant;
  statuses?: readonly AccountStatus[] | undefined;
}

/** Those that fail first, then by id. */
export async function listAccounts(
  em: EntityManager,
  { id, teamId, tenant, statuses }: AccountFilter,
): Promise<AccountFacts[]> {
  const used = (window: "HOUR" | "DAY", unit: "hour" | "day") => sql`coalesce((
    select u.used from account_usage u where u.account_id = a.id and u.window = ${sql.lit(window)}
      and u.starts_at = date_trunc(${sql.lit(unit)}, clock_timestamp(), 'UTC')), 0)`;
  const { rows } = await sql<AccountFacts>`
    select a.id, a.team_id as "teamId", a.environment, a.email, a.provider, a.status,
      a.last_error as "lastError", a.last_reply as "lastReply",
      ${refusalJson} as refusal, ${isoInstant(sql`a.last_checked_at`)} as "lastCheckedAt",
      case when a.status in ('PENDING', 'ACTIVE', 'ERROR') then ${isoInstant(sql`c.next_at`)} end as "nextCheckAt",
      a.host, a.port, a.max_connections as "maxConnections", coalesce((
        select sum(l.connections)::int from account_leases l
        where l.account_id = a.id and l.expires_at > clock_timestamp()), 0) as connections,
      case when a.hourly_limit is not null then
        json_build_object('used', ${used("HOUR", "hour")}, 'limit', a.hourly_limit) end as hour,
      case when a.daily_limit is not null then
        json_build_object('used', ${used("DAY", "day")}, 'limit', a.daily_limit) end as day,
      array(select s.id from sends s join send_lanes l on l.send_id = s.id and l.account_id = a.id
        where s.team_id = a.team_id and s.environment = a.environment and s.status in ('SCHEDULED', 'SENDING', 'PAUSED')
        order by s.id) as sends
    from email_accounts a
    left join account_refusals f on f.account_id = a.id
    left join account_checks c on c.account_id = a.id
    where ${tenant ? ofTenant(tenant, "a") : sql`true`} and (${id ?? null}::text is null or a.id = ${id ?? null})
      and (${teamId ?? null}::text is null or a.team_id = ${teamId ?? null})
      and (${statuses ?? null}::text[] is null or a.status = any(${statuses ?? null}::text[]))
    order by a.status in ('ACTIVE', 'PENDING') and f.account_id is null, a.id`.execute(kysely(em));
  return rows;
}

/** @throws {ApiError} `not_found` */
export async function readAccountFacts(em: EntityManager, id: string, tenant?: Tenant): Promise<AccountFacts> {
  const [account] = await listAccounts(em, { id, ...(tenant && { tenant }) });
  if (!account) throw new ApiError("not_found", `There is no sending account ${id}.`);
  return account;
}
