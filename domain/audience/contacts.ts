import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { Contact } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import type { IdempotencyHandle } from "../access/idempotency.ts";
import { storedAddress } from "../address.ts";
import { isErased, refuseErased } from "../erasure/erased-addresses.ts";
import { orNotFound } from "../errors.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../patch.ts";
import type { Vault } from "../secrets/crypto.ts";
import { keepFromEntering } from "../sequences/enrolments.ts";
import { emit } from "../webhooks/emit.ts";
import type { EventObject } from "../webhooks/objects.ts";
import { contactRecord } from "../webhooks/records.ts";
import { freeSlots, moveSlot, type TakenSlots } from "./contact-slots.ts";
import { type Created, defineCreation } from "./creation.ts";
import { emailStatusOf } from "./email-status.ts";
import { changedFields, type FieldChanges } from "./field-values.ts";
import { flushUnique, type PersonFields, refuseTaken } from "./people.ts";
import { keepDenial } from "./tracking-consents.ts";

export interface ContactFields extends PersonFields {
  /** Checked by `fieldProblem`. */
  fields: FieldChanges;
}

const contactRow = (id: string) => ({
  record: contactRecord("c"),
  from: sql`contacts c where c.id = ${id}`,
});

const insertContact = defineCreation({
  kind: "contact",
  event: "contact.created",
  record: contactRecord,
  insert: (tenant) => sql`
    insert into contacts (id, team_id, environment, email, email_spelling, first_name, last_name, fields, email_status)
    select g.id, ${tenant.teamId}, ${tenant.environment}, g.email, g."emailSpelling", g."firstName", g."lastName",
      g.fields::jsonb, ${emailStatusOf(tenant, sql`g.email`)}
    from given g where not ${isErased(tenant, sql`g."addressHash"`)}
    order by g.email collate "C"
    on conflict do nothing`,
  remedy: ", or use the bulk upsert",
});

/** See `defineCreation`. */
export const createContact = (
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  { fields, ...person }: ContactFields,
  claim: IdempotencyHandle | null = null,
): Promise<Created<EventObject<"contact">>> =>
  insertContact(em, vault, tenant, person, claim, { fields: JSON.stringify(changedFields({}, fields)) });

const lockContact = async (em: EntityManager, id: string): Promise<Contact> =>
  orNotFound(await em.findOne(Contact, { id }, { lockMode: LockMode.PESSIMISTIC_WRITE }));

/**
 * Changes a contact. The status of a new address follows from its suppressions.
 * @throws {ApiError} `not_found`, `resource_already_exists`, `person_erased`, `quota_exceeded`
 */
export async function updateContact(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  contactId: string,
  { email, fields, ...names }: Patch<ContactFields>,
): Promise<Patched<Contact> & TakenSlots> {
  const contact = await lockContact(em, contactId);
  const { email: formerAddress } = contact;
  const address = email === undefined ? undefined : storedAddress(email);
  const moved = address !== undefined && address.email !== formerAddress;
  if (moved) await refuseErased(em, vault, tenant, address.email);
  if (moved) await refuseTaken(em, tenant, "contact", address.email);
  em.assign(
    contact,
    changesOf({
      ...names,
      ...address,
      fields: fields && changedFields(contact.fields, fields),
      emailStatus: moved ? await readEmailStatus(em, tenant, address.email) : undefined,
    }),
    // Else the fields that are left out of the new values would stay.
    { mergeObjectProperties: false },
  );
  const isChanged = isDirty(em, contact);
  await flushUnique(em, "contact");
  if (moved) await keepDenial(em, tenant, formerAddress, address.email);
  if (moved) await keepFromEntering(em, vault, tenant, { id: contactId, email: address.email });
  const slots = moved ? await moveSlot(em, tenant, formerAddress, address.email) : 0;
  if (isChanged) await emit(em, tenant, "contact.updated", contactRow(contactId));
  return { record: await em.refreshOrFail(contact), isChanged, slots };
}

async function readEmailStatus(em: EntityManager, tenant: Tenant, email: string) {
  const { status } = await kysely(em)
    .selectNoFrom(emailStatusOf(tenant, sql`${email}`).as("status"))
    .executeTakeFirstOrThrow();
  return status;
}

/** Suppressions and unsubscribes of its address stay. @throws {ApiError} `not_found` */
export async function deleteContact(em: EntityManager, tenant: Tenant, contactId: string): Promise<void> {
  const contact = await lockContact(em, contactId);
  await emit(em, tenant, "contact.deleted", contactRow(contactId));
  await em.remove(contact).flush();
  await freeSlots(em, tenant, [contact.email]);
}
