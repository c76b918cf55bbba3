import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
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
