import { type RawBuilder, sql } from "kysely";
import type { AccountStatus } from "../../../db/entities/account.ts";
import type { BroadcastStatus } from "../../../db/entities/send.ts";
import type { MailFooter, TrackingMode } from "../../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { addressDomain, lookupAddress } from "../../address.ts";
import { readFields } from "../../audience/contact-fields.ts";
import { orNotFound } from "../../errors.ts";
import { footerOf } from "../../teams/brand.ts";
import { draftTracking } from "../../tracking/modes.ts";
import type { RefusalReason } from "../refusal.ts";
import type { MailingRules, MailResource, SendResource } from "../resource.ts";
import { footerOfNewsletter, listIdsOf } from "./drafts.ts";

/** The facts of a plan besides its members. */
export interface PlanSubject extends Tenant {
  resource: SendResource;
  rules: MailingRules;
  subject: string | null;
  body: string | null;
  /** Addresses in From: of a newsletter one, of a campaign one for each account. */
  fromAddresses: readonly string[];
  fromName: string | null;
  sendDays: readonly number[];
  /** Of the team: its days are those of this zone. */
  timeZone: string;
  /** ISO 8601: before it no mail leaves. */
  sendAt: string | null;
  /** Addresses of the accounts that mail it. */
  accountAddresses: readonly string[];
  /** Ids of the lists or of the segment that it targets; none while its segment is deleted, also one that narrows its lists. */
  targetIds: readonly string[];
  /** The segment that is set for it, unless that is deleted. It narrows the lists of a newsletter. */
  segmentId: string | null;
  fieldNames: readonly string[];
  /** Whose opens and clicks are to be counted: by its own setting, else by the team's. */
  tracking: TrackingMode;
  footer: MailFooter;
}

/** A resource as a send sees it: its content, its targets, and the accounts that would mail it. */
export interface Draft extends PlanSubject {
  status: BroadcastStatus;
  hasTimePassed: boolean;
  /** A sequence of mails over time, which no send mails. */
  isDrip: boolean;
  accounts: readonly DraftAccount[];
  /** Image blocks without an image, which leave no trace in the mail. */
  emptyImages: number;
  /** A step of it has a condition on opens or clicks of its own mails. */
  asksForHits: boolean;
  /** It names an account that is connected no longer. */
  isAccountGone: boolean;
  /** Why nothing can be composed for lack of a sender, and why it has no recipients; null where it has them. */
  missing: { sender: RefusalReason | null; targets: RefusalReason | null };
}

export interface DraftAccount {
  id: string;
  address: string;
  status: AccountStatus;
}

type DraftRow = Omit<
  Draft,
  | keyof Tenant
  | "resource"
  | "accounts"
  | "accountAddresses"
  | "fromAddresses"
  | "fieldNames"
  | "isAccountGone"
  | "missing"
> & {
  fromEmail: string | null;
  /** Of a campaign: one per attached account, in their order; nulls for one that is gone. */
  attached: { id: string | null; address: string | null; status: AccountStatus | null }[];
  isSegmentDeleted: boolean;
};

/** Strict: each array would count its items once more. */
const EMPTY_IMAGES = sql.lit('strict $.** ? (@.type == "image" && @.attrs.src == "")');

const OF_NEWSLETTER = sql`d.subject, d.body, d.from_email as "fromEmail", false as "isDrip", false as "asksForHits",
  ${footerOfNewsletter()} as footer, 'newsletter' as rules, '[]'::json as attached, ${listIdsOf("d")} as "targetIds"`;

/** Events without a resource are those of the sequence's mails. */
const OWN_HITS = sql.lit('$.** ? ((@.event == "opened" || @.event == "clicked") && !exists(@.resource))');
const OF_STEP = sql`v.subject, v.body, q.from_email as "fromEmail", true as "isDrip", '[]'::json as attached,
  ${footerOf(sql`q.list_id is not null`)} as footer,
  jsonb_path_exists(jsonb_build_array(v.stop_if, v.skip_if), ${OWN_HITS}) as "asksForHits",
  case when q.list_id is null then 'campaign' else 'list_sequence' end as rules,
  array_remove(array[coalesce(q.list_id, q.segment_id)], null) as "targetIds"`;

const ofCampaign = (tenant: Tenant): RawBuilder<unknown> => sql`null as "fromEmail", d.is_drip as "isDrip",
  d.subject, d.body, ${footerOf()} as footer, false as "asksForHits", 'campaign' as rules,
  (select coalesce(json_agg(json_build_object('id', a.id, 'address', a.email, 'status', a.status) order by n), '[]')
    from unnest(d.account_ids) with ordinality as attached (id, n)
    left join email_accounts a on a.id = attached.id and ${ofTenant(tenant, "a")}) as attached,
  array_remove(array[d.segment_id], null) as "targetIds"`;

/**
 * A draft, or a step of a sequence in any status.
 * @param options `lock` takes the row's lock, so that no edit is committed between the check and the arming
 * @throws {ApiError} `not_found`
 */
export async function readDraft(
  em: EntityManager,
  { teamId, environment }: Tenant,
  { type, id, stepId }: MailResource,
  { lock }: { lock: boolean },
): Promise<Draft> {
  const tenant = { teamId, environment };
  const isNewsletter = type === "newsletter";
  // A step has its sequence's address as a newsletter has its own.
  const hasAddress = isNewsletter || stepId !== undefined;
  const steps = sql`join sequences q on q.campaign_id = d.id
    join sequence_steps s on s.campaign_id = d.id and s.step_id = ${stepId} and s.removed_at is null
    join sequence_step_versions v on v.id = s.version_id`;
  const { rows } = await sql<DraftRow>`
    select d.status, d.from_name as "fromName", d.send_days::int[] as "sendDays", t.time_zone as "timeZone",
      ${isoInstant(sql`d.send_at`)} as "sendAt", coalesce(d.send_at <= clock_timestamp(), false) as "hasTimePassed",
      ${draftTracking("d")} as tracking, g.id as "segmentId",
      d.segment_id is not null and g.id is null as "isSegmentDeleted",
      coalesce(jsonb_array_length(jsonb_path_query_array(
        ${sql.ref(stepId === undefined ? "d.blocks" : "v.blocks")}, ${EMPTY_IMAGES})), 0) as "emptyImages",
      ${isNewsletter ? OF_NEWSLETTER : stepId === undefined ? ofCampaign(tenant) : OF_STEP}
    from ${sql.table(`${type}s`)} d join teams t on t.id = d.team_id ${stepId === undefined ? sql`` : steps}
    left join segments g on g.id = d.segment_id and g.deleted_at is null and ${ofTenant(tenant, "g")}
    where d.id = ${id} and ${ofTenant(tenant, "d")}
    ${lock ? sql`for update of d` : sql``}`.execute(kysely(em));
  const { attached, fromEmail, isSegmentDeleted, ...draft } = orNotFound(rows[0]);
  const targetIds = isSegmentDeleted ? [] : draft.targetIds;
  const picked = fromEmail === null ? null : await pickAccount(em, tenant, fromEmail);
  const connected = attached.filter((account): account is DraftAccount => account.id !== null);
  const accounts = hasAddress ? (picked ? [picked] : []) : connected;
  const accountAddresses = accounts.map(({ address }) => address);
  const ownFrom = fromEmail === null ? [] : [fromEmail];
  const hasSender = hasAddress ? fromEmail : attached.length > 0;
  return {
    ...tenant,
    ...draft,
    targetIds,
    resource: { type, id },
    fromAddresses: hasAddress ? ownFrom : accountAddresses,
    accountAddresses,
    accounts,
    isAccountGone: connected.length < attached.length,
    fieldNames: (await readFields(em, tenant)).map(({ name }) => name),
    missing: {
      sender: hasSender ? null : isNewsletter ? "no_from_email" : "no_attached_account",
      targets:
        targetIds.length > 0 ? null : !isNewsletter ? "no_segment" : isSegmentDeleted ? "segment_gone" : "no_list",
    },
  };
}

/**
 * The account with that very address, else one that is allowed for its domain: an ACTIVE one before others, the oldest
 * first.
 */
export async function pickAccount(em: EntityManager, tenant: Tenant, fromEmail: string): Promise<DraftAccount | null> {
  const email = lookupAddress(fromEmail);
  const domain = addressDomain(email);
  const account = await kysely(em)
    .selectFrom("email_accounts")
    .select(["id", "email as address", "status"])
    .where(ofTenant(tenant))
    .where(({ or, eb }) => or([eb("email", "=", email), sql<boolean>`${domain} = any(allowed_domains)`]))
    .orderBy(sql`email = ${email}`, "desc")
    .orderBy(sql`status = 'ACTIVE'`, "desc")
    .orderBy("id")
    .limit(1)
    .executeTakeFirst();
  return account ?? null;
}
