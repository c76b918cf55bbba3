import { type RawBuilder, sql } from "kysely";
import type { AccountStatus } from "../../db/entities/account.ts";
import type { BroadcastStatus, SendStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { Scope } from "../access/scopes.ts";
import { addressDomain, lookupAddress } from "../address.ts";
import type { SendResource } from "./resource.ts";

/** The facts of a plan besides its members. */
export interface PlanSubject extends Tenant {
  resource: SendResource;
  subject: string | null;
  body: string | null;
  fromEmail: string | null;
  fromName: string | null;
  sendDays: readonly number[];
  /** Address of the account that mails it. */
  accountAddress: string | null;
  listIds: readonly string[];
}

/** A resource as a send sees it: its content, its targets, and the account that would mail it. */
export interface Draft extends PlanSubject {
  status: BroadcastStatus;
  timeZone: string;
  /** Opens and clicks of its mails are to be counted: by its own setting, else by the team's. */
  tracking: boolean;
  account: SendingAccount | null;
}

export interface SendingAccount {
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
  /** Undefined when no event is due. */
  step: SendStep | undefined;
}

/** The content of a resource's mails. It does not change once the resource is scheduled. */
export interface ResourceContent {
  subject: string;
  /** HTML with merge tags. */
  body: string;
  fromEmail: string;
  /** Null for the account's own name. */
  fromName: string | null;
  /** Names of the targeted lists by id. */
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
  /**
   * Selects one row per address that the resource targets: `id`, `email`, `first_name`, `last_name`, `list_id`,
   * `opted_in`, `suppressed` (the team's do-not-mail list holds the address) and `memberships`: a text that changes when
   * the address is targeted by other lists, or with another status on one of them.
   */
  selectMembers(subject: PlanSubject): RawBuilder<unknown>;
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
 * The account that mails for a from-address, in any spelling of it: the account with that very address, else one that is allowed for its
 * domain, an ACTIVE one before others, the oldest among equals.
 */
export async function pickAccount(
  em: EntityManager,
  tenant: Tenant,
  fromEmail: string,
): Promise<SendingAccount | null> {
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
