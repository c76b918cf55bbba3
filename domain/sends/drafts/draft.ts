import { type RawBuilder, sql } from "kysely";
import type { AccountStatus } from "../../../db/entities/account.ts";
import type { BroadcastStatus } from "../../../db/entities/send.ts";
import type { TrackingMode } from "../../../db/entities/team.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { addressDomain, lookupAddress } from "../../address.ts";
import { readFields } from "../../audience/contact-fields.ts";
import { orNotFound } from "../../errors.ts";
import { draftTracking } from "../../tracking/modes.ts";
import type { RefusalReason } from "../refusal.ts";
import type { SendResource } from "../resource.ts";
import { listIdsOf } from "./drafts.ts";

/** The facts of a plan besides its members. */
export interface PlanSubject extends Tenant {
  resource: SendResource;
  subject: string | null;
  body: string | null;
  /** Addresses in From: of a newsletter one, of a campaign one for each account. */
  fromAddresses: readonly string[];
  fromName: string | null;
  sendDays: readonly number[];
  /** Addresses of the accounts that mail it. */
  accountAddresses: readonly string[];
  /** Ids of the lists or of the segment that it targets. */
  targetIds: readonly string[];
  fieldNames: readonly string[];
  /** Whose opens and clicks are to be counted: by its own setting, else by the team's. */
  tracking: TrackingMode;
}

/** A resource as a send sees it: its content, its targets, and the accounts that would mail it. */
export interface Draft extends PlanSubject {
  status: BroadcastStatus;
  timeZone: string;
  /** A sequence of mails over time, which no send mails. */
  isDrip: boolean;
  accounts: readonly DraftAccount[];
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

type DraftRow = Pick<
  Draft,
  "status" | "subject" | "body" | "fromName" | "sendDays" | "timeZone" | "tracking" | "targetIds" | "isDrip"
> & {
  fromEmail: string | null;
  /** Of a campaign: one per attached account, in their order; nulls for one that is gone. */
  attached: { id: string | null; address: string | null; status: AccountStatus | null }[];
};

const OF_NEWSLETTER = sql`d.from_email as "fromEmail", false as "isDrip", '[]'::json as attached, ${listIdsOf("d")} as "targetIds"`;

const ofCampaign = (tenant: Tenant): RawBuilder<unknown> => sql`null as "fromEmail", d.is_drip as "isDrip",
  (select coalesce(json_agg(json_build_object('id', a.id, 'address', a.email, 'status', a.status) order by n), '[]')
    from unnest(d.account_ids) with ordinality as attached (id, n)
    left join email_accounts a on a.id = attached.id and ${ofTenant(tenant, "a")}) as attached,
  array_remove(array[d.segment_id], null) as "targetIds"`;

/**
 * @param options `lock` takes the row's lock, so that no edit is committed between the check and the arming
 * @throws {ApiError} `not_found`
 */
export async function readDraft(
  em: EntityManager,
  { teamId, environment }: Tenant,
  { type, id }: SendResource,
  { lock }: { lock: boolean },
): Promise<Draft> {
  const tenant = { teamId, environment };
  const isNewsletter = type === "newsletter";
  const { rows } = await sql<DraftRow>`
    select d.status, d.subject, d.body, d.from_name as "fromName", d.send_days::int[] as "sendDays", t.time_zone as "timeZone",
      ${draftTracking("d")} as tracking, ${isNewsletter ? OF_NEWSLETTER : ofCampaign(tenant)}
    from ${sql.table(`${type}s`)} d join teams t on t.id = d.team_id
    where d.id = ${id} and ${ofTenant(tenant, "d")}
    ${lock ? sql`for update of d` : sql``}`.execute(kysely(em));
  const { attached, fromEmail, ...draft } = orNotFound(rows[0]);
  const picked = fromEmail === null ? null : await pickAccount(em, tenant, fromEmail);
  const connected = attached.filter((account): account is DraftAccount => account.id !== null);
  const accounts = isNewsletter ? (picked ? [picked] : []) : connected;
  const accountAddresses = accounts.map(({ address }) => address);
  const newsletterFrom = fromEmail === null ? [] : [fromEmail];
  const hasSender = isNewsletter ? fromEmail : attached.length > 0;
  return {
    ...tenant,
    ...draft,
    resource: { type, id },
    fromAddresses: isNewsletter ? newsletterFrom : accountAddresses,
    accountAddresses,
    accounts,
    isAccountGone: connected.length < attached.length,
    fieldNames: isNewsletter ? [] : (await readFields(em, tenant)).map(({ name }) => name),
    missing: {
      sender: hasSender ? null : isNewsletter ? "no_from_email" : "no_attached_account",
      targets: draft.targetIds.length > 0 ? null : isNewsletter ? "no_list" : "no_segment",
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
