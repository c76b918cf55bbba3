import { type RawBuilder, sql } from "kysely";
import type { AccountStatus } from "../../db/entities/account.ts";
import type { BroadcastStatus, SendStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { Scope } from "../access/scopes.ts";
import { addressDomain, lookupAddress } from "../address.ts";
import type { RefusalReason } from "./refusal.ts";
import type { SendResource } from "./resource.ts";

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
  /** Custom fields that its recipients may have. */
  fieldNames: readonly string[];
}

/** A resource as a send sees it: its content, its targets, and the accounts that would mail it. */
export interface Draft extends PlanSubject {
  status: BroadcastStatus;
  timeZone: string;
  /** Opens and clicks of its mails are to be counted: by its own setting, else by the team's. */
  tracking: boolean;
  /** A sequence of mails over time, which no send mails. */
  isDrip: boolean;
  /** The connected accounts that mail it. */
  accounts: readonly DraftAccount[];
  /** It names an account that is connected no longer. */
  isAccountGone: boolean;
  /** Why nothing can be composed for lack of a sender, and why it has no recipients; null where it has them. */
  missing: { sender: RefusalReason | null; targets: RefusalReason | null };
}

/** A connected account that would mail a draft. */
export interface DraftAccount {
  id: string;
  address: string;
  status: AccountStatus;
}

/** The last part of an event's name, for a change of a send's status. */
export type SendStep = "started" | "paused" | "completed" | "cancelled";

/** A send after a change of its status. */
export interface MovedSend {
  sendId: string;
  to: SendStatus;
  startedAt: string | null;
  completedAt: string | null;
  /** Why it is paused, see `pauseSend`; null in every other status. */
  reason: string | null;
  /** Undefined when no event is due. */
  step: SendStep | undefined;
}

/** The content of a resource's mails. It does not change once the resource is scheduled. */
export interface ResourceContent {
  subject: string;
  /** HTML with merge tags. */
  body: string;
  /** Null for the account's own address. */
  fromEmail: string | null;
  /** Null for the account's own name. */
  fromName: string | null;
  /** Names of the targeted lists by id; none of a campaign. */
  listNames: ReadonlyMap<string, string>;
}

/** The functions that a kind of resource offers to sends. */
export interface Sendable {
  /** The scope of a key that may send the resource. */
  readonly scope: Scope;
  /**
   * Reads the resource for a send.
   * @param lock takes the row's lock, so that no edit is committed between the check and the arming
   * @throws {ApiError} `not_found` when the tenant has no such resource
   */
  readDraft(em: EntityManager, tenant: Tenant, id: string, options: { lock: boolean }): Promise<Draft>;
  /** Its recipients have custom fields, which are staged with them. */
  readonly hasFields: boolean;
  /**
   * Makes the query for one row per address that the resource targets: `id`, `email`, `email_spelling`, `first_name`,
   * `last_name`, `list_id`, `fields` (null for none), `permitted` (opted in, or with a valid address), `suppressed` (the
   * team's do-not-mail list holds the address) and `fingerprint`: a bigint that changes when the address, why it is
   * targeted or its permission changes.
   * @throws {ApiError} `filter_unsupported` when a segment cannot be evaluated
   */
  selectMembers(em: EntityManager, subject: PlanSubject): Promise<RawBuilder<unknown>>;
  /**
   * Selects `row` and `ineligible` of each recipient in `picked` (`row`, `email`, `member_id`, `team_id`, `environment`,
   * `resource_id`): why it may not be mailed any more, or null. Part of the statement that stages recipients.
   */
  readonly selectIneligible: RawBuilder<unknown>;
  readContent(em: EntityManager, tenant: Tenant, id: string): Promise<ResourceContent>;
  /** Sets the resource SCHEDULED and emits its event. */
  markScheduled(em: EntityManager, tenant: Tenant, id: string, send: { id: string; sendAt: Date }): Promise<void>;
  /**
   * Takes the resource where its send is, and emits its event. A resource that was SENT stays SENT: later outcomes of
   * its unknown recipients concern the send alone.
   */
  markMoved(em: EntityManager, tenant: Tenant, id: string, send: MovedSend): Promise<void>;
}

/**
 * Finds the account that mails for a from-address, in any spelling of it: the account with that very address, else an
 * account that is allowed for its domain, an ACTIVE one before others, the oldest among equals.
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
