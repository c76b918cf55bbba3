import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { List, type Optin, Subscription } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { moveToBin } from "../bin/bin.ts";
import { ApiError, notFound, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../patch.ts";
import type { Vault } from "../secrets/crypto.ts";
import { enrolConfirmed } from "../sequences/enrolments.ts";
import { pauseRunning } from "../sequences/state.ts";
import { holdPlace } from "../teams/record-limit.ts";
import { emit } from "../webhooks/emit.ts";
import { binSubscriptions } from "./binned-subscriptions.ts";
import { initialStatus, pending } from "./initial-status.ts";
import { isOf, restoreOptOuts, subscriptionRows } from "./opt-outs.ts";
import { isUnsubscribe } from "./suppressions.ts";

export interface ListFields {
  name: string;
  description: string | null;
  optin: Optin;
  hasArchive?: boolean;
}

/** In the caller's transaction; the tenant may have `limit` lists. @throws {ApiError} `resource_limit_reached` */
export async function createList(em: EntityManager, tenant: Tenant, fields: ListFields, limit: number): Promise<List> {
  await holdPlace(em, tenant, { table: "lists", name: "lists" }, limit);
  const list = em.create(List, { id: newId("list"), ...tenant, ...fields });
  await em.flush();
  return list;
}

/** @throws {ApiError} `not_found` */
export const readList = async (em: EntityManager, id: string): Promise<List> =>
  orNotFound(await em.findOne(List, { id }));

const lockList = async (em: EntityManager, id: string, lockMode: LockMode): Promise<List> =>
  orNotFound(await em.findOne(List, { id }, { lockMode }));

/** Prevents the list's deletion until the transaction ends. @throws {ApiError} `not_found` */
export const lockListForInserts = (em: EntityManager, listId: string): Promise<List> =>
  lockList(em, listId, LockMode.PESSIMISTIC_READ);

/** A changed `optin` decides how subscriptions start from now on. @throws {ApiError} `not_found` */
export async function updateList(em: EntityManager, listId: string, patch: Patch<ListFields>): Promise<Patched<List>> {
  const list = await lockList(em, listId, LockMode.PESSIMISTIC_WRITE);
  em.assign(list, changesOf(patch));
  const isChanged = isDirty(em, list);
  await em.flush();
  return { record: await em.refreshOrFail(list), isChanged };
}

/**
 * Moves a list with its subscriptions to the bin, takes it off the drafts that target it and pauses its sequences.
 * @returns subscriptions that it had
 * @throws {ApiError} `not_found`; `resource_state_invalid` while an unfinished newsletter targets it
 */
export async function deleteList(em: EntityManager, tenant: Tenant, listId: string): Promise<number> {
  const list = await lockList(em, listId, LockMode.PESSIMISTIC_WRITE);
  const targeting = await kysely(em)
    .selectFrom("newsletters")
    .innerJoin("newsletter_lists", "newsletter_lists.newsletter_id", "newsletters.id")
    .select(["newsletters.id", "newsletters.status"])
    .where(ofTenant(tenant, "newsletters"))
    .where("newsletter_lists.list_id", "=", listId)
    .orderBy("newsletters.id")
    // Waits for a confirm of one of these drafts to commit.
    .forUpdate("newsletters")
    .execute();
  const unfinished = ["SCHEDULED", "SENDING", "PAUSED"];
  const busy = targeting.find(({ status }) => unfinished.includes(status));
  if (busy) {
    throw new ApiError("resource_state_invalid", `Newsletter ${busy.id} is ${busy.status} and targets this list.`);
  }
  // Written, not only locked: a confirm that planned with this list gets a conflict.
  const ids = targeting.map(({ id }) => id);
  await touchNewsletters(em, tenant, ids);
  await pauseRunning(em, tenant, sql`q.list_id = ${listId}`, "not_found");
  const isMember = sql`s.list_id = ${listId} and s.status <> 'UNSUBSCRIBED'`;
  await emit(em, tenant, "subscription.removed", subscriptionRows(tenant, isMember));
  const subscriptions = await binSubscriptions(em, tenant, listId);
  await moveToBin(em, tenant, { kind: "list", id: listId, name: list.name });
  return subscriptions;
}

/** Those of them that are drafts. */
export async function touchNewsletters(em: EntityManager, tenant: Tenant, newsletterIds: string[]): Promise<void> {
  if (newsletterIds.length === 0) return;
  await kysely(em)
    .updateTable("newsletters")
    .set({ updated_at: sql<string>`now()` })
    .where(ofTenant(tenant))
    .where("id", "in", newsletterIds)
    .where("status", "=", "DRAFT")
    .execute();
}

export interface MembershipOutcome {
  /** Subscriber ids, each in exactly one of the three. */
  added: string[];
  alreadySubscribed: string[];
  /** Only the person lifts their opt-out, by a confirmation; adding them again does not. */
  optedOut: string[];
  /** Those of the latter two who are asked for a confirmation again. */
  asked: string[];
}

/** A sign-up at a form. */
export interface FormSignUp {
  /** The texts that the person was shown. */
  textId: string;
  /** Their answer about tracking, which counts from the confirmation on; null where they were not asked. */
  tracking: boolean | null;
}

/**
 * Puts subscribers on a list; an existing subscription keeps its status. A person who is PENDING is asked for a confirmation
 * again, and on a list with double opt-in one who opted out of it, or of all mail of the team.
 * @param byForm every list asks for a confirmation then
 * @throws {ApiError} `not_found` for the list, or, naming `subscriber_ids[i]`, for a subscriber; then none is added
 */
export async function addSubscribers(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  listId: string,
  subscriberIds: readonly string[],
  byForm?: FormSignUp,
): Promise<MembershipOutcome> {
  const list = await lockListForInserts(em, listId);
  // In one order, so that two overlapping calls do not deadlock.
  const ids = [...new Set(subscriberIds)].sort();
  await restoreOptOuts(em, vault, tenant, await lockSubscribers(em, tenant, subscriberIds, ids));

  const optin = byForm ? "DOUBLE" : list.optin;
  const status = initialStatus(optin, tenant.environment);
  const inserted = await kysely(em)
    .insertInto("subscriptions")
    .values(
      ids.map((id) => ({
        list_id: listId,
        subscriber_id: id,
        team_id: tenant.teamId,
        environment: tenant.environment,
        is_made_by_form: byForm !== undefined,
        ...status,
      })),
    )
    .onConflict((conflict) => conflict.doNothing())
    .returning("subscriber_id")
    .execute();
  const added = new Set(inserted.map((row) => row.subscriber_id));
  const isAdded = sql`s.list_id = ${listId} and s.subscriber_id = any(${[...added]})`;
  if (added.size > 0) await emit(em, tenant, "subscription.created", subscriptionRows(tenant, isAdded));
  if (status.status === "CONFIRMED" && added.size > 0) await enrolConfirmed(em, vault, tenant, listId, [...added]);
  const asked = optin === "DOUBLE" ? await askOptedOut(em, tenant, listId, ids) : [];
  asked.push(...(await askPending(em, tenant, listId, ids)));
  if (byForm) await noteForm(em, tenant, listId, ids, byForm);
  const others = ids.filter((id) => !added.has(id));
  const statuses = others.length === 0 ? [] : await readStatuses(em, tenant, listId, others);
  const optedOut = new Set(statuses.filter((row) => row.status === "UNSUBSCRIBED").map((row) => row.subscriber_id));
  return {
    added: [...added],
    alreadySubscribed: others.filter((id) => !optedOut.has(id)),
    optedOut: [...optedOut],
    asked: asked.filter((id) => !added.has(id)),
  };
}

/**
 * Makes a confirmation mail due for those who opted out of the list or of all mail. A link that was mailed since the opt-out
 * still works, unless it was used. @returns their ids
 */
export async function askOptedOut(em: EntityManager, tenant: Tenant, listId: string, ids: string[]): Promise<string[]> {
  const { confirmation_due_at: due } = pending(tenant.environment);
  const { rows } = await sql<{ id: string }>`
    update subscriptions s set
      signed_up_again_at = case when s.confirmed_at >= s.signed_up_again_at then now()
        else coalesce(s.signed_up_again_at, now()) end,
      confirmation_due_at = coalesce(s.confirmation_due_at, ${due})
    where ${ofTenant(tenant, "s")} and s.list_id = ${listId} and s.subscriber_id = any(${ids})
      and (s.status = 'UNSUBSCRIBED' or exists (
        select from subscribers p join suppressions x on ${ofTenant(tenant, "x")} and x.email = p.email
        where p.id = s.subscriber_id and ${ofTenant(tenant, "p")} and ${isUnsubscribe("x")}))
    returning s.subscriber_id as id`.execute(kysely(em));
  return rows.map(({ id }) => id);
}

/** Of a subscription that waits for its confirmation: the last sign-up counts. */
async function noteForm(
  em: EntityManager,
  tenant: Tenant,
  listId: string,
  ids: string[],
  { textId, tracking }: FormSignUp,
): Promise<void> {
  await sql`
    update subscriptions s set form_text_id = ${textId}, form_tracking = ${tracking}::boolean, form_at = now()
    where ${ofTenant(tenant, "s")} and s.list_id = ${listId} and s.subscriber_id = any(${ids})
      and (s.status = 'PENDING' or s.signed_up_again_at > coalesce(s.confirmed_at, '-infinity'))`.execute(kysely(em));
}

/** Makes a confirmation mail due for the PENDING who wait for none: theirs may be lost. @returns their ids */
async function askPending(em: EntityManager, tenant: Tenant, listId: string, ids: string[]): Promise<string[]> {
  const { confirmation_due_at: due } = pending(tenant.environment);
  if (due === null) return [];
  const rows = await kysely(em)
    .updateTable("subscriptions")
    .set({ confirmation_due_at: due })
    .where(ofTenant(tenant))
    .where("list_id", "=", listId)
    .where("subscriber_id", "in", ids)
    .where("status", "=", "PENDING")
    .where("confirmation_due_at", "is", null)
    .returning("subscriber_id as id")
    .execute();
  return rows.map(({ id }) => id);
}

/** Prevents the deletion of subscribers until the transaction ends. @param ids the `given` ids, each once */
async function lockSubscribers(em: EntityManager, tenant: Tenant, given: readonly string[], ids: string[]) {
  const rows = await kysely(em)
    .selectFrom("subscribers")
    .select(["id", "email"])
    .where(ofTenant(tenant))
    .where("id", "in", ids)
    .orderBy("id")
    .forKeyShare()
    .execute();
  const known = new Set(rows.map((row) => row.id));
  const unknown = given.findIndex((id) => !known.has(id));
  if (unknown >= 0) throw notFound(`subscriber_ids[${unknown}]`);
  return rows;
}

const readStatuses = (em: EntityManager, tenant: Tenant, listId: string, subscriberIds: string[]) =>
  kysely(em)
    .selectFrom("subscriptions")
    .select(["subscriber_id", "status"])
    .where(ofTenant(tenant))
    .where("list_id", "=", listId)
    .where("subscriber_id", "in", subscriberIds)
    .execute();

/** @throws {ApiError} `not_found`; `resource_state_invalid` for an opt-out, which adding them again would lift unseen */
export async function removeSubscriber(
  em: EntityManager,
  tenant: Tenant,
  listId: string,
  subscriberId: string,
): Promise<void> {
  const lockMode = LockMode.PESSIMISTIC_WRITE;
  const subscription = orNotFound(await em.findOne(Subscription, { listId, subscriberId }, { lockMode }));
  if (subscription.status === "UNSUBSCRIBED") {
    throw new ApiError("resource_state_invalid", "They opted out of this list; the opt-out is kept.");
  }
  await emit(em, tenant, "subscription.removed", subscriptionRows(tenant, isOf(listId, subscriberId)));
  await em.remove(subscription).flush();
}
