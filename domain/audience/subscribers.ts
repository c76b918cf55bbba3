import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { Subscriber } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { storedAddress } from "../address.ts";
import { isErased, refuseErased } from "../erasure/erased-addresses.ts";
import { orNotFound } from "../errors.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../patch.ts";
import type { Vault } from "../secrets/crypto.ts";
import { keepFromEntering } from "../sequences/enrolments.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriberRecord } from "../webhooks/records.ts";
import { freeSlots, moveSlot, type TakenSlots } from "./contact-slots.ts";
import { defineCreation } from "./creation.ts";
import { pending } from "./initial-status.ts";
import { endSignUps, keepOptOutsOf, restoreOptOuts, subscriptionRows } from "./opt-outs.ts";
import { flushUnique, type PersonFields, refuseTaken } from "./people.ts";
import { keepDenial } from "./tracking-consents.ts";

/** Makes a subscriber without a list, see `defineCreation`. */
export const createSubscriber = defineCreation({
  kind: "subscriber",
  event: "subscriber.created",
  record: subscriberRecord,
  insert: (tenant) => sql`
    insert into subscribers (id, team_id, environment, email, email_spelling, first_name, last_name)
    select g.id, ${tenant.teamId}, ${tenant.environment}, g.email, g."emailSpelling", g."firstName", g."lastName"
    from given g where not ${isErased(tenant, sql`g."addressHash"`)}
    order by g.email collate "C"
    on conflict do nothing`,
});

const subscriberRow = (id: string) => ({
  record: subscriberRecord("s"),
  from: sql`subscribers s where s.id = ${id}`,
});

export const lockSubscriber = async (em: EntityManager, id: string): Promise<Subscriber> =>
  orNotFound(await em.findOne(Subscriber, { id }, { lockMode: LockMode.PESSIMISTIC_WRITE }));

/**
 * Changes a subscriber. Lists with double opt-in ask a new address again: the owner of the old one consented. Opt-outs hold
 * for both addresses.
 * @throws {ApiError} `not_found`, `resource_already_exists`, `person_erased`, `quota_exceeded`
 */
export async function updateSubscriber(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  subscriberId: string,
  patch: Patch<PersonFields>,
): Promise<Patched<Subscriber> & TakenSlots> {
  const subscriber = await lockSubscriber(em, subscriberId);
  const address = patch.email === undefined ? undefined : storedAddress(patch.email);
  const { email: formerAddress } = subscriber;
  const moved = address !== undefined && address.email !== formerAddress;
  if (moved) {
    await refuseErased(em, vault, tenant, address.email);
    await refuseTaken(em, tenant, "subscriber", address.email);
    await keepOptOutsOf(em, vault, tenant, subscriber);
  }
  em.assign(subscriber, changesOf({ ...patch, ...address }));
  const isChanged = isDirty(em, subscriber);
  await flushUnique(em, "subscriber");
  if (moved) {
    await restoreOptOuts(em, vault, tenant, [{ id: subscriberId, email: address.email }]);
    await keepDenial(em, tenant, formerAddress, address.email);
    await keepFromEntering(em, vault, tenant, { id: subscriberId, email: address.email });
    await askForConfirmationAgain(em, tenant, sql<boolean>`s.subscriber_id = ${subscriberId}`);
  }
  const slots = moved ? await moveSlot(em, tenant, formerAddress, address.email) : 0;
  if (isChanged) await emit(em, tenant, "subscriber.updated", subscriberRow(subscriberId));
  return { record: await em.refreshOrFail(subscriber), isChanged, slots };
}

/** It was the owner of the other address who signed up. */
const NO_FORM = { form_text_id: null, form_at: null, form_tracking: null, is_made_by_form: false };

/** On lists with double opt-in, persons confirm their new address. @param which condition on subscriptions `s` */
export async function askForConfirmationAgain(
  em: EntityManager,
  tenant: Tenant,
  which: RawBuilder<boolean>,
): Promise<void> {
  await endSignUps(em, tenant, which);
  await kysely(em)
    .updateTable("subscriptions as s")
    .from("lists")
    .set({ ...pending(tenant.environment), confirmation_sent_at: null, ...NO_FORM })
    .where(ofTenant(tenant, "s"))
    .whereRef("lists.id", "=", "s.list_id")
    .where("lists.optin", "=", "DOUBLE")
    .where(which)
    .where("s.status", "in", ["CONFIRMED", "PENDING"])
    .execute();
}

/**
 * Suppressions and unsubscribes of the address stay; opt-outs of lists stay as hashes, see `restoreOptOuts`.
 * @returns how many subscriptions there were @throws {ApiError} `not_found`
 */
export async function deleteSubscriber(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  subscriberId: string,
): Promise<number> {
  const subscriber = await lockSubscriber(em, subscriberId);
  const subscriptions = await keepOptOutsOf(em, vault, tenant, subscriber);
  await deleteMember(em, tenant, subscriber);
  return subscriptions;
}

/** Deletes a locked subscriber with their subscriptions, also those that are opt-outs. */
export async function deleteMember(em: EntityManager, tenant: Tenant, subscriber: Subscriber): Promise<void> {
  const isMember = sql`s.subscriber_id = ${subscriber.id} and s.status <> 'UNSUBSCRIBED'`;
  await emit(em, tenant, "subscription.removed", subscriptionRows(tenant, isMember));
  await emit(em, tenant, "subscriber.deleted", subscriberRow(subscriber.id));
  // The foreign key deletes the subscriptions.
  await em.remove(subscriber).flush();
  await freeSlots(em, tenant, [subscriber.email]);
}
