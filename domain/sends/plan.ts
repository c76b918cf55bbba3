import { createHash } from "node:crypto";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { PlanSubject } from "./draft.ts";
import { sendable } from "./sendable.ts";

/** How many addresses a plan targets, in disjoint classes. */
export interface PlanCounts {
  total: number;
  notOptedIn: number;
  suppressed: number;
  eligible: number;
}

/** Order-independent fingerprint of every member as (id, address, memberships with their status, suppressed). */
export interface MemberDigest {
  xor: string;
  sum: string;
}

export interface ResolvedPlan {
  counts: PlanCounts;
  digest: string;
}

/** Selects one row per address that the subject targets; see `Sendable`. */
export const planMembers = (subject: PlanSubject) => sendable(subject.resource).selectMembers(subject);

/**
 * Counts a plan's members and digests them, in one aggregate query: no row comes to Node, however large the audience is.
 * Opt-in is looked at before suppression, so an address that is neither opted in nor wanted counts as not opted in.
 */
export async function countMembers(em: EntityManager, subject: PlanSubject): Promise<PlanCounts & MemberDigest> {
  const { rows } = await sql<PlanCounts & MemberDigest>`
    select count(*)::int as "total",
      (count(*) filter (where not opted_in))::int as "notOptedIn",
      (count(*) filter (where opted_in and suppressed))::int as "suppressed",
      (count(*) filter (where opted_in and not suppressed))::int as "eligible",
      coalesce(bit_xor(hashtextextended(member, 0)), 0)::text as "xor",
      coalesce(sum(hashtextextended(member, 1)), 0)::text as "sum"
    from (
      select opted_in, suppressed, id || '|' || email || '|' || memberships || '|' || suppressed as member
      from (${planMembers(subject)}) members
    ) digested`.execute(kysely(em));
  const [counted] = rows;
  if (!counted) throw new Error("an aggregate query returned no row");
  return counted;
}

/**
 * The digest a confirmation token is bound to: a change of a targeted membership or its status, of a suppression of
 * anyone targeted, of the content or of the sender changes it. It holds no clock, cap, complaint rate, balance or account
 * status; those are gates.
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

/** Resolves which addresses the subject would be mailed to at this moment. */
export async function resolvePlan(em: EntityManager, subject: PlanSubject): Promise<ResolvedPlan> {
  const members = await countMembers(em, subject);
  const { total, notOptedIn, suppressed, eligible } = members;
  return { counts: { total, notOptedIn, suppressed, eligible }, digest: planDigest(subject, members) };
}
