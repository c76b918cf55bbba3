import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { Contact } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { storedAddress } from "../address.ts";
import { notFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../patch.ts";
import { emit } from "../webhooks/emit.ts";
import { contactRecord } from "../webhooks/records.ts";
import { changedFields, type FieldChanges } from "./contact-fields.ts";
import { emailStatusOf } from "./email-status.ts";
import { alreadyExists, flushUnique, type PersonFields } from "./people.ts";

export interface ContactFields extends PersonFields {
  /** Checked, see contact-fields.ts. */
  fields: FieldChanges;
}

/**
 * A row that the same transaction has just written or locked. By its id alone: with the tenant's columns beside it, a
 * plan made while the table was small walks the index of the tenant's rows.
 */
const contactRow = (id: string) => ({
  record: contactRecord("c"),
  from: sql`contacts c where c.id = ${id}`,
  name: "contact",
});

/**
 * Makes a contact.
 * @throws {ApiError} `resource_already_exists`; of several calls at once with one address, all but one get it
 */
export async function createContact(
  em: EntityManager,
  tenant: Tenant,
  { email, firstName, lastName, fields }: ContactFields,
): Promise<Contact> {
  const address = storedAddress(email);
  const row = await kysely(em)
    .insertInto("contacts")
    .values({
      id: newId("contact"),
      team_id: tenant.teamId,
      environment: tenant.environment,
      email: address.email,
      email_spelling: address.emailSpelling,
      first_name: firstName,
      last_name: lastName,
      fields: changedFields({}, fields),
      email_status: emailStatusOf(tenant, sql`${address.email}`),
    })
    .onConflict((conflict) => conflict.doNothing())
    .returningAll()
    .executeTakeFirst();
  if (!row) throw alreadyExists("contact", ", or use the bulk upsert");
  await emit(em, tenant, "contact.created", contactRow(row.id));
  return em.map(Contact, row);
}

/**
 * A contact of the tenant.
 * @throws {ApiError} `not_found`
 */
export async function readContact(em: EntityManager, contactId: string): Promise<Contact> {
  const contact = await em.findOne(Contact, { id: contactId });
  if (!contact) throw notFound();
  return contact;
}

async function lockContact(em: EntityManager, contactId: string): Promise<Contact> {
  const contact = await em.findOne(Contact, { id: contactId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!contact) throw notFound();
  return contact;
}

/**
 * Changes a contact. The status of a new address follows from the suppressions of that address.
 * @throws {ApiError} `not_found`; `resource_already_exists` when another contact has the address
 */
export async function updateContact(
  em: EntityManager,
  tenant: Tenant,
  contactId: string,
  { email, fields, ...names }: Patch<ContactFields>,
): Promise<Patched<Contact>> {
  const contact = await lockContact(em, contactId);
  const address = email === undefined ? undefined : storedAddress(email);
  const moved = address !== undefined && address.email !== contact.email;
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
  if (isChanged) await emit(em, tenant, "contact.updated", contactRow(contactId));
  return { record: await em.refreshOrFail(contact), isChanged };
}

async function readEmailStatus(em: EntityManager, tenant: Tenant, email: string) {
  const { status } = await kysely(em)
    .selectNoFrom(emailStatusOf(tenant, sql`${email}`).as("status"))
    .executeTakeFirstOrThrow();
  return status;
}

/**
 * Deletes a contact. Suppressions and unsubscribes of its address stay.
 * @throws {ApiError} `not_found`
 */
export async function deleteContact(em: EntityManager, tenant: Tenant, contactId: string): Promise<void> {
  const contact = await lockContact(em, contactId);
  await emit(em, tenant, "contact.deleted", contactRow(contactId));
  await em.remove(contact).flush();
}
