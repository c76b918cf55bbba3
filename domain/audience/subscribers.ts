import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { Subscriber, Subscription } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { storedAddress } from "../address.ts";
import { notFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../patch.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriberRecord } from "../webhooks/records.ts";
import { pending } from "./initial-status.ts";
import { alreadyExists, flushUnique, type PersonFields } from "./people.ts";

/**
 * Makes a subscriber without a list.
 * @throws {ApiError} `resource_already_exists`; of several calls at once with one address, all but one get it
 */
export async function createSubscriber(
  em: EntityManager,
  tenant: Tenant,
  { email, firstName, lastName }: PersonFields,
): Promise<Subscriber> {
  const address = storedAddress(email);
  // A conditional statement, which costs less than a flush: this is the most frequent write.
  const row = await kysely(em)
    .insertInto("subscribers")
    .values({
      id: newId("subscriber"),
      team_id: tenant.teamId,
      environment: tenant.environment,
      email: address.email,
      email_spelling: address.emailSpelling,
      first_name: firstName,
      last_name: lastName,
    })
    .onConflict((conflict) => conflict.doNothing())
    .returningAll()
    .executeTakeFirst();
  if (!row) throw alreadyExists("subscriber");
  await emit(em, tenant, "subscriber.created", subscriberRow(row.id));
  return em.map(Subscriber, row);
}

/**
 * A row that the same transaction has just written. By its id alone: with the tenant's columns beside it, a plan made
 * while the table was small walks the index of the tenant's rows.
 */
const subscriberRow = (id: string) => ({
  record: subscriberRecord("s"),
  from: sql`subscribers s where s.id = ${id}`,
  name: "subscriber",
});

/**
 * Changes a subscriber. A new address has to be confirmed again on lists with double opt-in: the consent was given by
 * the owner of the old one.
 * @throws {ApiError} `not_found`; `resource_already_exists` when another subscriber has the address
 */
export async function updateSubscriber(
  em: EntityManager,
  tenant: Tenant,
  subscriberId: string,
  patch: Patch<PersonFields>,
): Promise<Patched<Subscriber>> {
  const subscriber = await em.findOne(Subscriber, { id: subscriberId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!subscriber) throw notFound();
  const address = patch.email === undefined ? undefined : storedAddress(patch.email);
  const moved = address !== undefined && address.email !== subscriber.email;
  em.assign(subscriber, changesOf({ ...patch, ...address }));
  const isChanged = isDirty(em, subscriber);
  await flushUnique(em, "subscriber");
  if (moved) await askForConfirmationAgain(em, tenant, subscriberId);
  if (isChanged) await emit(em, tenant, "subscriber.updated", subscriberRow(subscriberId));
  return { record: await em.refreshOrFail(subscriber), isChanged };
}

async function askForConfirmationAgain(em: EntityManager, tenant: Tenant, subscriberId: string): Promise<void> {
  await kysely(em)
    .updateTable("subscriptions")
    .from("lists")
    .set({ ...pending(tenant.environment), confirmation_sent_at: null })
    .where(ofTenant(tenant, "subscriptions"))
    .whereRef("lists.id", "=", "subscriptions.list_id")
    .where("lists.optin", "=", "DOUBLE")
    .where("subscriptions.subscriber_id", "=", subscriberId)
    .where("subscriptions.status", "in", ["CONFIRMED", "PENDING"])
    .execute();
}

/**
 * A subscriber with their subscriptions, the oldest first.
 * @throws {ApiError} `not_found`
 */
export async function readSubscriber(
  em: EntityManager,
  subscriberId: string,
): Promise<{ subscriber: Subscriber; subscriptions: Subscription[] }> {
  const subscriber = await em.findOne(Subscriber, { id: subscriberId });
  if (!subscriber) throw notFound();
  const subscriptions = await em.find(Subscription, { subscriberId }, { orderBy: { createdAt: "asc", listId: "asc" } });
  return { subscriber, subscriptions };
}
