import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { List, type Optin, Subscription } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { changesOf, type Patch } from "../patch.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriptionRecord } from "../webhooks/records.ts";
import { initialStanding } from "./standing.ts";

export interface ListFields {
  name: string;
  description: string | null;
  optin: Optin;
}

/** Makes an empty list. */
export async function createList(em: EntityManager, tenant: Tenant, fields: ListFields): Promise<List> {
  const row = await kysely(em)
    .insertInto("lists")
    .values({ id: newId("list"), team_id: tenant.teamId, environment: tenant.environment, ...fields })
    .returningAll()
    .executeTakeFirstOrThrow();
  return em.map(List, row);
}

/**
 * A list of the tenant.
 * @throws {ApiError} `not_found`
 */
export async function readList(em: EntityManager, listId: string): Promise<List> {
  const list = await em.findOne(List, { id: listId });
  if (!list) throw notFound();
  return list;
}

/**
 * Changes a list. A changed `optin` decides how subscriptions start from now on; those that stand are left alone.
 * @throws {ApiError} `not_found`
 */
export async function updateList(em: EntityManager, listId: string, patch: Patch<ListFields>): Promise<List> {
  const list = await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!list) throw notFound();
  em.assign(list, changesOf(patch));
  await em.flush();
  return em.refreshOrFail(list);
}

/** Subscriptions as events tell of them. */
const subscriptionRows = (which: RawBuilder<unknown>) => ({
  record: subscriptionRecord("s"),
  from: sql`subscriptions s where ${which}`,
});

/**
 * Deletes a list with its subscriptions and takes it off the drafts that target it. The subscribers stay.
 * @throws {ApiError} `not_found`; `resource_state_invalid` while a newsletter that is not finished targets it, for
 *   the send would lose its recipients half-way
 */
export async function deleteList(em: EntityManager, tenant: Tenant, listId: string): Promise<void> {
  const list = await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!list) throw notFound();
  const targeting = await kysely(em)
    .selectFrom("newsletters")
    .innerJoin("newsletter_lists", "newsletter_lists.newsletter_id", "newsletters.id")
    .select(["newsletters.id", "newsletters.status"])
    .where("newsletter_lists.list_id", "=", listId)
    .orderBy("newsletters.id")
    // A draft that is being confirmed right now is waited for.
    .forUpdate("newsletters")
    .execute();
  const unfinished = ["SCHEDULED", "SENDING", "PAUSED"];
  const busy = targeting.find(({ status }) => unfinished.includes(status));
  if (busy) {
    throw new ApiError("resource_state_invalid", `Newsletter ${busy.id} is ${busy.status} and targets this list.`);
  }
  // The drafts' `lists` change. Written, not only locked: a confirm that planned with this list meets a conflict.
  await touchNewsletters(
    em,
    targeting.filter(({ status }) => status === "DRAFT").map(({ id }) => id),
  );
  // Whoever opted out was taken off then.
  const left = sql`s.list_id = ${listId} and s.status <> 'UNSUBSCRIBED'`;
  await emit(em, tenant, "subscription.removed", subscriptionRows(left));
  await em.remove(list).flush();
}

/** Moves `updated_at` of newsletters whose targets change. */
export async function touchNewsletters(em: EntityManager, newsletterIds: string[]): Promise<void> {
  if (newsletterIds.length === 0) return;
  await kysely(em)
    .updateTable("newsletters")
    .set({ updated_at: sql<string>`now()` })
    .where("id", "in", newsletterIds)
    .execute();
}

export interface MembershipOutcome {
  /** Subscriber ids, each in exactly one of the three. */
  added: string[];
  alreadySubscribed: string[];
  /** Left alone: an opt-out is lifted by its person only, never by being added again. */
  optedOut: string[];
}

/**
 * Puts subscribers on a list, each once: whoever is on it already keeps the standing they have.
 * @throws {ApiError} `not_found` for the list, or, naming `subscriber_ids[i]`, for a subscriber; then nobody is added
 */
export async function addSubscribers(
  em: EntityManager,
  tenant: Tenant,
  listId: string,
  subscriberIds: readonly string[],
): Promise<MembershipOutcome> {
  const list = await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_READ });
  if (!list) throw notFound();
  // In one order everywhere, so that two overlapping calls wait for each other instead of locking each other out.
  const ids = [...new Set(subscriberIds)].sort();
  await assertSubscribers(em, tenant, subscriberIds, ids);

  const standing = initialStanding(list.optin, tenant.environment);
  const inserted = await kysely(em)
    .insertInto("subscriptions")
    .values(
      ids.map((id) => ({
        list_id: listId,
        subscriber_id: id,
        team_id: tenant.teamId,
        environment: tenant.environment,
        ...standing,
      })),
    )
    .onConflict((conflict) => conflict.doNothing())
    .returning("subscriber_id")
    .execute();
  const added = new Set(inserted.map((row) => row.subscriber_id));
  const fresh = sql`s.list_id = ${listId} and s.subscriber_id = any(${[...added]})`;
  if (added.size > 0) await emit(em, tenant, "subscription.created", subscriptionRows(fresh));
  const others = ids.filter((id) => !added.has(id));
  const standings = others.length === 0 ? [] : await readStatuses(em, listId, others);
  const optedOut = new Set(standings.filter((row) => row.status === "UNSUBSCRIBED").map((row) => row.subscriber_id));
  return {
    added: [...added],
    alreadySubscribed: others.filter((id) => !optedOut.has(id)),
    optedOut: [...optedOut],
  };
}

async function assertSubscribers(
  em: EntityManager,
  tenant: Tenant,
  given: readonly string[],
  ids: string[],
): Promise<void> {
  const rows = await kysely(em)
    .selectFrom("subscribers")
    .select("id")
    .where("team_id", "=", tenant.teamId)
    .where("environment", "=", tenant.environment)
    .where("id", "in", ids)
    .execute();
  const known = new Set(rows.map((row) => row.id));
  const unknown = given.findIndex((id) => !known.has(id));
  if (unknown >= 0) throw new ApiError("not_found", undefined, { param: `subscriber_ids[${unknown}]` });
}

const readStatuses = (em: EntityManager, listId: string, subscriberIds: string[]) =>
  kysely(em)
    .selectFrom("subscriptions")
    .select(["subscriber_id", "status"])
    .where("list_id", "=", listId)
    .where("subscriber_id", "in", subscriberIds)
    .execute();

/**
 * Takes a subscriber off a list.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when they opted out of it themselves, for adding them again
 *   would then lift the opt-out unseen
 */
export async function removeSubscriber(
  em: EntityManager,
  tenant: Tenant,
  listId: string,
  subscriberId: string,
): Promise<void> {
  const subscription = await em.findOne(
    Subscription,
    { listId, subscriberId },
    { lockMode: LockMode.PESSIMISTIC_WRITE },
  );
  if (!subscription) throw notFound();
  if (subscription.status === "UNSUBSCRIBED") {
    throw new ApiError("resource_state_invalid", "They opted out of this list; the opt-out is kept.");
  }
  const row = sql`s.list_id = ${listId} and s.subscriber_id = ${subscriberId}`;
  await emit(em, tenant, "subscription.removed", subscriptionRows(row));
  await em.remove(subscription).flush();
}
