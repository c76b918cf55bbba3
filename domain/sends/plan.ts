import { createHash } from "node:crypto";
import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import type { SendResource } from "./resource.ts";

/** How many addresses a plan reaches, and why the others are left out. The classes are disjoint. */
export interface PlanCounts {
  total: number;
  notOptedIn: number;
  suppressed: number;
  eligible: number;
}

/** What the plan of a newsletter is made of besides its members. */
export interface PlanSubject extends Tenant {
  resource: SendResource;
  subject: string | null;
  body: string | null;
  fromEmail: string | null;
  fromName: string | null;
  sendDays: readonly number[];
  /** Address of the account that carries it. */
  accountAddress: string | null;
  listIds: readonly string[];
}

/** Order-independent fingerprint of every member as (id, address, class). */
export interface MemberDigest {
  xor: string;
  sum: string;
}

export interface ResolvedPlan {
  counts: PlanCounts;
  digest: string;
}

/**
 * One row per address on the targeted lists: `opted_in` when confirmed on at least one of them, `list_id` the first
 * such list, `suppressed` when the team's do-not-mail list holds the address. On one list no grouping is needed, which
 * halves the cost of a large plan.
 */
export function planMembers({ teamId, environment, listIds }: Pick<PlanSubject, "teamId" | "environment" | "listIds">) {
  const [only, ...others] = listIds;
  const memberships =
    only !== undefined && others.length === 0
      ? sql`select subscriber_id, status = 'CONFIRMED' as opted_in, list_id
            from subscriptions where list_id = ${only} and team_id = ${teamId} and environment = ${environment}`
      : sql`select subscriber_id, bool_or(status = 'CONFIRMED') as opted_in,
              coalesce(min(list_id) filter (where status = 'CONFIRMED'), min(list_id)) as list_id
            from subscriptions where list_id = any(${[...listIds]}) and team_id = ${teamId} and environment = ${environment}
            group by subscriber_id`;
  return sql`
    select s.id, s.email, s.first_name, s.last_name, m.list_id, m.opted_in, x.id is not null as suppressed
    from (${memberships}) m
    join subscribers s on s.id = m.subscriber_id and s.team_id = ${teamId} and s.environment = ${environment}
    left join suppressions x on x.team_id = ${teamId} and x.environment = ${environment} and x.email = s.email`;
}

/**
 * Counts a plan's members and digests them, in one aggregate query: no row comes to Node, whatever the audience.
 * Opt-in is looked at before suppression, so an address that is neither opted in nor wanted counts as not opted in.
 */
export async function countMembers(
  em: EntityManager,
  subject: Pick<PlanSubject, "teamId" | "environment" | "listIds">,
): Promise<PlanCounts & MemberDigest> {
  const { rows } = await sql<PlanCounts & MemberDigest>`
    select count(*)::int as "total",
      (count(*) filter (where class = 'n'))::int as "notOptedIn",
      (count(*) filter (where class = 's'))::int as "suppressed",
      (count(*) filter (where class = 'e'))::int as "eligible",
      coalesce(bit_xor(hashtextextended(member, 0)), 0)::text as "xor",
      coalesce(sum(hashtextextended(member, 1)), 0)::text as "sum"
    from (
      select class, id || '|' || email || '|' || class as member
      from (
        select id, email, case when not opted_in then 'n' when suppressed then 's' else 'e' end as class
        from (${planMembers(subject)}) members
      ) classes
    ) digested`.execute(kysely(em));
  const [counted] = rows;
  if (!counted) throw new Error("an aggregate query returned no row");
  return counted;
}

/**
 * The digest a confirmation token is bound to: whatever changes who gets what from whom changes it. It holds no clock,
 * cap, complaint rate, balance or account status; those are gates.
 */
export function planDigest(subject: PlanSubject, members: PlanCounts & MemberDigest): string {
  const facts = [
    subject.teamId,
    subject.environment,
    subject.resource.type,
    subject.resource.id,
    subject.subject,
    subject.body,
    subject.fromEmail,
    subject.fromName,
    subject.accountAddress,
    [...subject.listIds].sort(),
    [...subject.sendDays].sort((a, b) => a - b),
    [members.total, members.notOptedIn, members.suppressed, members.eligible],
    [members.xor, members.sum],
  ];
  return createHash("sha256").update(JSON.stringify(facts)).digest("base64url");
}

/** Resolves who a newsletter would reach right now. */
export async function resolvePlan(em: EntityManager, subject: PlanSubject): Promise<ResolvedPlan> {
  const members = await countMembers(em, subject);
  const { total, notOptedIn, suppressed, eligible } = members;
  return { counts: { total, notOptedIn, suppressed, eligible }, digest: planDigest(subject, members) };
}
