import { createHash } from "node:crypto";
import { sql } from "kysely";
import { type EntityManager, kysely } from "../../../db/orm.ts";
import { consentOf, isTrackedBy } from "../../tracking/modes.ts";
import type { PlanSubject } from "../drafts/draft.ts";
import { planMembers } from "../drafts/members.ts";

/** How many addresses a plan targets, in disjoint classes. */
export interface PlanCounts {
  /** All but those outside. */
  total: number;
  /** On the lists of a newsletter, and left out by the segment that narrows them. */
  outside: number;
  /** Not opted in, of a newsletter; without a valid address, of a campaign. */
  ineligible: number;
  suppressed: number;
  eligible: number;
  /** Of the eligible ones, those whose opens and clicks are counted. It may change until their mails leave. */
  tracked: number;
}

/** `sum`: an order-independent fingerprint of every member as (id, fingerprint, outside, suppressed); see `planMembers`. */
type CountedMembers = PlanCounts & { sum: string };

export interface ResolvedPlan {
  counts: PlanCounts;
  digest: string;
}

/**
 * In one aggregate query: no row comes to Node. A member's fingerprint seeds the hash of its id, cheaper than to hash
 * both. The permission is looked at before suppression.
 */
async function countMembers(em: EntityManager, subject: PlanSubject): Promise<CountedMembers> {
  const members = await planMembers(em, subject);
  const { tracking } = subject;
  const tracked = tracking === "OFF" ? sql`false` : isTrackedBy(tracking, consentOf(subject, "members"));
  const { rows } = await sql<CountedMembers>`
    select (count(*) filter (where not outside))::int as "total",
      (count(*) filter (where outside))::int as "outside",
      (count(*) filter (where not permitted and not outside))::int as "ineligible",
      (count(*) filter (where permitted and suppressed))::int as "suppressed",
      (count(*) filter (where permitted and not suppressed))::int as "eligible",
      (count(*) filter (where permitted and not suppressed and ${tracked}))::int as "tracked",
      coalesce(sum(hashtextextended(id, fingerprint # (outside::int * 2 + suppressed::int))), 0)::text as "sum"
    from (${members}) members`.execute(kysely(em));
  const [counted] = rows;
  if (!counted) throw new Error("an aggregate query returned no row");
  return counted;
}

/**
 * The digest a confirmation token is bound to: all that a client saw in the preview. It holds no clock, cap, complaint
 * rate, balance or account status; those are gates. Nor whose opens are counted: a consent must not make a token void.
 */
export function planDigest(subject: PlanSubject, members: Omit<CountedMembers, "tracked" | "outside">): string {
  const { footer } = subject;
  const facts = [
    subject.teamId,
    subject.environment,
    subject.resource.type,
    subject.resource.id,
    subject.subject,
    subject.body,
    [...subject.fromAddresses].sort(),
    subject.fromName,
    [...subject.accountAddresses].sort(),
    [...subject.targetIds].sort(),
    subject.segmentId,
    [...subject.sendDays].sort((a, b) => a - b),
    // Days are those of the team's zone.
    subject.sendDays.length > 0 && subject.timeZone,
    subject.sendAt,
    usedFields(subject),
    [footer.language, footer.mailFooter, footer.postalAddress, footer.isOnWeb],
    [members.total, members.ineligible, members.suppressed, members.eligible],
    members.sum,
  ];
  return createHash("sha256").update(JSON.stringify(facts)).digest("base64url");
}

/** Custom fields that the content names: one that is deleted meanwhile would be filled with nothing. */
function usedFields({ subject, body, fieldNames }: PlanSubject): string[] {
  const content = `${subject} ${body}`;
  return fieldNames.filter((name) => content.includes(name)).sort();
}

export async function resolvePlan(em: EntityManager, subject: PlanSubject): Promise<ResolvedPlan> {
  const members = await countMembers(em, subject);
  const { sum: _, ...counts } = members;
  return { counts, digest: planDigest(subject, members) };
}
