import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { notFound } from "../errors.ts";
import { CANCELLED } from "./end-group.ts";
import { type EndpointHealth, healthOf } from "./endpoint-health.ts";
import { endWaiting, oldestWaiting } from "./waiting.ts";

/** Waiting deliveries of an endpoint are counted up to this number. */
const MOST_COUNTED = 10_000;
/** Deliveries that one statement gives up: a long one would hold up the relay. */
const GIVEN_UP_AT_ONCE = 1_000;

/** The health of an endpoint, and the deliveries that are on their way to it. */
export interface Backlog {
  active: boolean;
  health: EndpointHealth;
  /** In a row. */
  failures: number;
  /** ISO 8601; null unless it is failing. */
  failingSince: string | null;
  nextProbeAt: string | null;
  /** Deliveries that no workflow carries, counted up to 10,000. */
  waiting: number;
  /** Groups of deliveries that workflows carry. */
  workflows: number;
}

/** States of an endpoint: `off`, when nothing is sent to it, or its health. */
export const ENDPOINT_STATES = ["failing", "off", "working", "unproven"] as const;
export type EndpointState = (typeof ENDPOINT_STATES)[number];

/** An endpoint in a list of operators. */
export interface ListedEndpoint extends Tenant {
  id: string;
  url: string;
  state: EndpointState;
  /** Why it is off; null when its owner switched it off, and while it is on. */
  reason: string | null;
  failures: number;
  failingSince: string | null;
}

/** The endpoints to list; a field that is missing lets all through. */
export interface EndpointFilter {
  states?: readonly EndpointState[] | undefined;
  teamId?: string | undefined;
  /** At most so many. */
  limit: number;
}

/** Lists endpoints: those that fail, then those that the platform switched off, then the others; each the newest first. */
export async function listEndpoints(
  em: EntityManager,
  { states, teamId, limit }: EndpointFilter,
): Promise<ListedEndpoint[]> {
  const { rows } = await sql<ListedEndpoint>`
    select l.* from (
      select e.id, e.team_id as "teamId", e.environment, e.url, e.disabled_reason as reason,
        case when e.active then ${healthOf("h")} else 'off' end as state,
        h.consecutive_failures as failures, ${isoInstant(sql`h.failing_since`)} as "failingSince"
      from webhook_endpoints e join webhook_health h on h.webhook_id = e.id
      where ${teamId ?? null}::text is null or e.team_id = ${teamId ?? null}
    ) l
    where ${states ?? null}::text[] is null or l.state = any(${states ?? null}::text[])
    order by l.state <> 'failing', l.reason is null, l.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}

/** @throws {ApiError} `not_found` */
export async function readBacklog(em: EntityManager, tenant: Tenant, webhookId: string): Promise<Backlog> {
  const { rows } = await sql<Omit<Backlog, "failingSince" | "nextProbeAt"> & { since: string; next: string }>`
    select e.active, ${healthOf("h")} as health, h.consecutive_failures as failures, h.failing_since as since,
      h.probe_at as next, (
      select count(*)::int from ${oldestWaiting(sql`e.id`, sql.lit(MOST_COUNTED))} d) as waiting, (
      select count(*)::int from webhook_groups g where g.webhook_id = e.id) as workflows
    from webhook_endpoints e join webhook_health h on h.webhook_id = e.id
    where e.id = ${webhookId} and ${ofTenant(tenant, "e")}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw notFound();
  const { since, next, ...backlog } = row;
  const iso = (instant: string | null) => instant && new Date(instant).toISOString();
  return { ...backlog, failingSince: iso(since), nextProbeAt: iso(next) };
}

/**
 * Gives up the deliveries that wait for an endpoint and that no workflow carries: FAILED, and they can be replayed. Not to
 * be called in a transaction.
 * @returns how many
 */
export async function giveUpWaiting(em: EntityManager, webhookId: string): Promise<number> {
  for (let total = 0; ; ) {
    const ended = await endWaiting(em, webhookId, CANCELLED, "FAILED", GIVEN_UP_AT_ONCE);
    total += ended;
    // Not once it ends fewer: another process may have taken some of those that it had found.
    if (ended === 0) return total;
  }
}
