import { sql } from "kysely";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { kysely, ofTenant } from "../../db/orm.ts";
import { notFound } from "../errors.ts";
import { emit } from "../webhooks/emit.ts";
import { newsletterRow } from "../webhooks/records.ts";
import { pickAccount, type Sendable } from "./draft.ts";
import { marksOf } from "./marks.ts";

interface DraftRow {
  id: string;
  status: BroadcastStatus;
  subject: string | null;
  body: string | null;
  from_email: string | null;
  from_name: string | null;
  send_days: string[];
  time_zone: string;
  tracking: boolean;
  list_ids: string[];
}

const readDraft: Sendable["readDraft"] = async (em, tenant, id, { lock }) => {
  const { rows } = await sql<DraftRow>`
    select n.id, n.status, n.subject, n.body, n.from_email, n.from_name, n.send_days, t.time_zone,
      coalesce(n.tracking, t.tracking) as tracking,
      array(select list_id from newsletter_lists l where l.newsletter_id = n.id order by list_id) as list_ids
    from newsletters n join teams t on t.id = n.team_id
    where n.id = ${id} and ${ofTenant(tenant, "n")}
    ${lock ? sql`for update of n` : sql``}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw notFound();
  const account = row.from_email === null ? null : await pickAccount(em, tenant, row.from_email);
  return {
    teamId: tenant.teamId,
    environment: tenant.environment,
    resource: { type: "newsletter", id: row.id },
    status: row.status,
    subject: row.subject,
    body: row.body,
    fromAddresses: row.from_email === null ? [] : [row.from_email],
    fromName: row.from_name,
    sendDays: row.send_days.map(Number),
    timeZone: row.time_zone,
    tracking: row.tracking,
    targetIds: row.list_ids,
    accountAddresses: account ? [account.address] : [],
    accounts: account ? [account] : [],
    isAccountGone: false,
    isDrip: false,
    fieldNames: [],
    missing: {
      sender: row.from_email ? null : "no_from_email",
      targets: row.list_ids.length > 0 ? null : "no_list",
    },
  };
};

/**
 * Subscribers of the targeted lists, each address once: permitted when confirmed on at least one of them, `list_id` the
 * first such list. On one list no grouping is needed, which halves the cost of a large plan. The hashes of several
 * memberships are combined by XOR, which needs no order. Their lists differ, so that none cancels another.
 *
 * The left join with the subscribers adds and loses no row: each subscription has its subscriber, by a foreign key. Postgres
 * leaves it out where no column of it is asked for.
 *
 * Right after an import Postgres takes a team for one row, and would read all of it again for each row of a join. So the left join
 * does not compare the tenant, the lookup of a suppressed subscriber has a limit, and the full join, which leaves out those of other
 * lists, is never a nested loop; its condition is written so that Postgres does not make it a left join.
 */
const selectMembers: Sendable["selectMembers"] = async (_em, { targetIds: listIds, ...tenant }) => {
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
    select m.subscriber_id as id, s.email, s.email_spelling, s.first_name, s.last_name, m.list_id, null::jsonb as fields,
      m.permitted, suppressed.id is not null as suppressed, m.fingerprint
    from (${memberships}) m
    full join (
      select holder.id from suppressions suppression
      cross join lateral (
        select h.id from subscribers h where ${ofTenant(tenant, "h")} and h.email = suppression.email limit 1) holder
      where ${ofTenant(tenant, "suppression")}
    ) suppressed on suppressed.id = m.subscriber_id
    left join subscribers s on s.id = m.subscriber_id
    where coalesce(m.subscriber_id, '') <> ''`;
};

const selectIneligible = sql`
      select p.row, case
          when u.id is null then 'subscriber_deleted'
          when u.email <> p.email then 'address_changed'
          when x.id is not null then 'suppressed'
          when not exists (
            select 1 from newsletter_lists l
            join subscriptions m on m.list_id = l.list_id and m.subscriber_id = p.member_id
            where l.newsletter_id = p.resource_id and m.status = 'CONFIRMED'
          ) then 'opted_out'
        end as ineligible
      from picked p
      left join subscribers u on u.id = p.member_id
      left join suppressions x on x.team_id = p.team_id and x.environment = p.environment and x.email = p.email`;

const readContent: Sendable["readContent"] = async (em, tenant, id) => {
  const db = kysely(em);
  const row = await db
    .selectFrom("newsletters")
    .select(["subject", "body", "from_email", "from_name"])
    .where("id", "=", id)
    .where(ofTenant(tenant))
    .executeTakeFirstOrThrow();
  const lists = await db
    .selectFrom("lists")
    .innerJoin("newsletter_lists", "newsletter_lists.list_id", "lists.id")
    .select(["lists.id", "lists.name"])
    .where("newsletter_lists.newsletter_id", "=", id)
    .where(ofTenant(tenant, "lists"))
    .execute();
  return {
    subject: row.subject ?? "",
    body: row.body ?? "",
    fromEmail: row.from_email ?? "",
    fromName: row.from_name,
    listNames: new Map(lists.map((list) => [list.id, list.name])),
  };
};

/** A newsletter mails the subscribers of the lists that are attached to it. */
export const newsletter: Sendable = {
  scope: "newsletters:send",
  hasFields: false,
  readDraft,
  selectMembers,
  selectIneligible,
  readContent,
  ...marksOf("newsletters", (em, tenant, id, step) => emit(em, tenant, `newsletter.${step}`, newsletterRow(id))),
};
