import { sql } from "kysely";
import type { AccountStatus } from "../../db/entities/account.ts";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { forTenant, kysely, ofTenant } from "../../db/orm.ts";
import { readFields } from "../audience/contact-fields.ts";
import { segmentContacts } from "../audience/segments/segments.ts";
import { notFound } from "../errors.ts";
import { emit } from "../webhooks/emit.ts";
import { campaignRow } from "../webhooks/records.ts";
import type { DraftAccount, Sendable } from "./draft.ts";
import { marksOf } from "./marks.ts";

interface DraftRow {
  id: string;
  status: BroadcastStatus;
  subject: string | null;
  body: string | null;
  from_name: string | null;
  send_days: string[];
  time_zone: string;
  tracking: boolean;
  segment_id: string | null;
  is_drip: boolean;
  /** One row per attached account, in their order; nulls for one that is gone. */
  accounts: { id: string | null; address: string | null; status: AccountStatus | null }[];
}

const readDraft: Sendable["readDraft"] = async (em, tenant, id, { lock }) => {
  const { rows } = await sql<DraftRow>`
    select c.id, c.status, c.subject, c.body, c.from_name, c.send_days, t.time_zone,
      coalesce(c.tracking, t.tracking) as tracking, c.segment_id, c.is_drip,
      (select coalesce(json_agg(json_build_object('id', a.id, 'address', a.email, 'status', a.status) order by n), '[]')
        from unnest(c.account_ids) with ordinality as attached (id, n)
        left join email_accounts a on a.id = attached.id and ${ofTenant(tenant, "a")}) as accounts
    from campaigns c join teams t on t.id = c.team_id
    where c.id = ${id} and ${ofTenant(tenant, "c")}
    ${lock ? sql`for update of c` : sql``}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw notFound();
  const accounts = row.accounts.filter((account): account is DraftAccount => account.id !== null);
  const addresses = accounts.map(({ address }) => address);
  return {
    teamId: tenant.teamId,
    environment: tenant.environment,
    resource: { type: "campaign", id: row.id },
    status: row.status,
    subject: row.subject,
    body: row.body,
    fromAddresses: addresses,
    fromName: row.from_name,
    sendDays: row.send_days.map(Number),
    timeZone: row.time_zone,
    tracking: row.tracking,
    targetIds: row.segment_id === null ? [] : [row.segment_id],
    accountAddresses: addresses,
    accounts,
    isAccountGone: accounts.length < row.accounts.length,
    isDrip: row.is_drip,
    fieldNames: (await readFields(em, tenant)).map(({ name }) => name),
    missing: {
      sender: row.accounts.length > 0 ? null : "no_attached_account",
      targets: row.segment_id === null ? "no_segment" : null,
    },
  };
};

/** Contacts of the targeted segment: permitted when their address is valid. */
const selectMembers: Sendable["selectMembers"] = async (em, { targetIds: [segmentId], ...tenant }) => {
  const contacts =
    segmentId === undefined
      ? sql`select c.* from contacts c where ${ofTenant(tenant, "c")} and false`
      : await segmentContacts(forTenant(em, tenant), tenant, segmentId);
  return sql`
    select c.id, c.email, c.email_spelling, c.first_name, c.last_name, null::text as list_id,
      nullif(c.fields, '{}') as fields, c.email_status = 'ACTIVE' as permitted, x.id is not null as suppressed,
      hashtextextended(c.email || '|' || c.email_status, 0) as fingerprint
    from (${contacts}) c left join suppressions x on ${ofTenant(tenant, "x")} and x.email = c.email`;
};

/** The segment is not evaluated again: it decided at the confirm. */
const selectIneligible = sql`
      select p.row, case
          when c.id is null then 'contact_deleted'
          when c.email <> p.email then 'address_changed'
          when c.email_status = 'INVALID' then 'address_invalid'
          when x.id is not null then 'suppressed'
        end as ineligible
      from picked p
      left join contacts c on c.id = p.member_id
      left join suppressions x on x.team_id = p.team_id and x.environment = p.environment and x.email = p.email`;

const readContent: Sendable["readContent"] = async (em, tenant, id) => {
  const row = await kysely(em)
    .selectFrom("campaigns")
    .select(["subject", "body", "from_name"])
    .where("id", "=", id)
    .where(ofTenant(tenant))
    .executeTakeFirstOrThrow();
  return {
    subject: row.subject ?? "",
    body: row.body ?? "",
    fromEmail: null,
    fromName: row.from_name,
    listNames: new Map(),
  };
};

/** A campaign mails the contacts of the segment that is attached to it, over all accounts that are. */
export const campaign: Sendable = {
  scope: "campaigns:send",
  hasFields: true,
  readDraft,
  selectMembers,
  selectIneligible,
  readContent,
  ...marksOf("campaigns", (em, tenant, id, step) => emit(em, tenant, `campaign.${step}`, campaignRow(id))),
};
