import { type RawBuilder, sql } from "kysely";
import { type EntityManager, forTenant, ofTenant } from "../../../db/orm.ts";
import { segmentContacts } from "../../audience/segments/segments.ts";
import type { MailingRules } from "../resource.ts";
import type { PlanSubject } from "./draft.ts";

/**
 * Makes the query for one row per address that a subject targets: `id`, `email`, `email_spelling`, `first_name`,
 * `last_name`, `list_id`, `fields` (null for none, or where the content uses none), `permitted` (opted in, or with a valid
 * address), `outside` (a subscriber whom its segment leaves out, and therefore not permitted), `suppressed` (the team's
 * do-not-mail list holds it) and `fingerprint`: a bigint that changes with the address, why it is targeted, or its permission.
 * @throws {ApiError} `filter_unsupported` when a segment cannot be evaluated
 */
export const planMembers = async (em: EntityManager, subject: PlanSubject): Promise<RawBuilder<unknown>> =>
  await (subject.rules === "campaign" ? selectContacts : selectSubscribers)(em, subject);

/**
 * Subscribers of the targeted lists, each address once: permitted when confirmed on one of them, `list_id` the first
 * such list; their names are their own, their fields those of the contact with their address. On one list no grouping is
 * needed, which halves the cost. The joins are written for a planner without statistics, right after an import: a full join
 * cannot become a nested loop, the left join of subscribers does not compare the tenant, and the condition keeps the full
 * joins from becoming others.
 */
async function selectSubscribers(
  em: EntityManager,
  { targetIds: listIds, segmentId, ...subject }: PlanSubject,
): Promise<RawBuilder<unknown>> {
  const { teamId, environment } = subject;
  const tenant = { teamId, environment };
  const selected = segmentId === null ? undefined : await segmentContacts(forTenant(em, tenant), tenant, segmentId);
  const contacts = selected
    ? sql`full join (${selected}) k on k.email = s.email`
    : usesFields(subject) && sql`left join contacts k on ${ofTenant(tenant, "k")} and k.email = s.email`;
  const [only, ...others] = listIds;
  const memberships =
    only !== undefined && others.length === 0
      ? sql`select subscriber_id, status = 'CONFIRMED' as permitted, list_id,
              hashtextextended(status, address_version) as fingerprint
            from subscriptions where list_id = ${only} and ${ofTenant(tenant)}`
      : sql`select subscriber_id, bool_or(status = 'CONFIRMED') as permitted,
              coalesce(min(list_id) filter (where status = 'CONFIRMED'), min(list_id)) as list_id,
              bit_xor(hashtextextended(list_id || '|' || status, address_version)) as fingerprint
            from subscriptions where list_id = any(${[...listIds]}) and ${ofTenant(tenant)}
            group by subscriber_id`;
  return sql`
    select m.subscriber_id as id, s.email, s.email_spelling, s.first_name, s.last_name, m.list_id,
      ${contacts ? sql`nullif(k.fields, '{}')` : sql`null::jsonb`} as fields,
      ${selected ? sql`m.permitted and k.id is not null as permitted, k.id is null` : sql`m.permitted, false`} as outside,
      suppressed.id is not null as suppressed, m.fingerprint
    from (${memberships}) m
    full join (
      select holder.id from suppressions suppression
      cross join lateral (
        select h.id from subscribers h where ${ofTenant(tenant, "h")} and h.email = suppression.email limit 1) holder
      where ${ofTenant(tenant, "suppression")}
    ) suppressed on suppressed.id = m.subscriber_id
    left join subscribers s on s.id = m.subscriber_id
    ${contacts || sql``}
    where coalesce(m.subscriber_id, '') <> ''`;
}

/** Without them no contact needs to be read. */
const usesFields = ({ subject, body, fieldNames }: Pick<PlanSubject, "subject" | "body" | "fieldNames">): boolean =>
  fieldNames.length > 0 && `${subject} ${body}`.includes("fields");

/** Contacts of the targeted segment: permitted when their address is valid. */
async function selectContacts(
  em: EntityManager,
  { targetIds: [segmentId], ...tenant }: PlanSubject,
): Promise<RawBuilder<unknown>> {
  const contacts =
    segmentId === undefined
      ? sql`select c.* from contacts c where ${ofTenant(tenant, "c")} and false`
      : await segmentContacts(forTenant(em, tenant), tenant, segmentId);
  return sql`
    select c.id, c.email, c.email_spelling, c.first_name, c.last_name, null::text as list_id,
      nullif(c.fields, '{}') as fields, c.email_status = 'ACTIVE' as permitted, false as outside, x.id is not null as suppressed,
      hashtextextended(c.email || '|' || c.email_status, 0) as fingerprint
    from (${contacts}) c left join suppressions x on ${ofTenant(tenant, "x")} and x.email = c.email`;
}

type Select = (columns: RawBuilder<unknown>) => RawBuilder<unknown>;

const ineligibleSubscribers =
  (permission: RawBuilder<unknown>): Select =>
  (columns) =>
    sql`
      select ${columns}, case
          when u.id is null then 'subscriber_deleted'
          when u.email <> p.email then 'address_changed'
          when x.id is not null then 'suppressed'
          when not exists (${permission}
          ) then 'opted_out'
        end as ineligible
      from picked p
      left join subscribers u on u.id = p.member_id
      left join suppressions x on x.team_id = p.team_id and x.environment = p.environment and x.email = p.email`;

/**
 * Selects columns and `ineligible` (why it may not be mailed any more, or null) of each recipient `p` in `picked` (`email`,
 * `member_id`, `list_id`, `team_id`, `environment`, `resource_id`). Part of the statements that stage recipients and claim waves.
 */
export const selectIneligible: Readonly<Record<MailingRules, Select>> = {
  newsletter: ineligibleSubscribers(sql`
            select 1 from newsletter_lists l
            join subscriptions m on m.list_id = l.list_id and m.subscriber_id = p.member_id
            where l.newsletter_id = p.resource_id and m.status = 'CONFIRMED'`),
  list_sequence: ineligibleSubscribers(sql`
            select 1 from subscriptions m
            where m.list_id = p.list_id and m.subscriber_id = p.member_id and m.status = 'CONFIRMED'`),
  // No segment is evaluated again, also of a newsletter: it decided at the confirm.
  campaign: (columns) => sql`
      select ${columns}, case
          when c.id is null then 'contact_deleted'
          when c.email <> p.email then 'address_changed'
          when c.email_status = 'INVALID' then 'address_invalid'
          when x.id is not null then 'suppressed'
        end as ineligible
      from picked p
      left join contacts c on c.id = p.member_id
      left join suppressions x on x.team_id = p.team_id and x.environment = p.environment and x.email = p.email`,
};
