import { isDeepStrictEqual } from "node:util";
import { sql } from "kysely";
import type { FieldValues } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { type StoredAddress, storedAddress } from "../address.ts";
import type { Vault } from "../crypto.ts";
import { erasedHash, isErased, personErased } from "../erasure/erased-addresses.ts";
import type { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Patch } from "../patch.ts";
import { emit, emitWritten } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify-relay.ts";
import { contactRecord } from "../webhooks/records.ts";
import { changedFields } from "./contact-fields.ts";
import { CONTACT_WRITTEN, lockedContacts } from "./contact-rows.ts";
import { slotsExceeded, type TakenSlots, takeSlotsInOrder } from "./contact-slots.ts";
import type { ContactFields } from "./contacts.ts";
import { emailStatusOf } from "./email-status.ts";

/** A contact by its address; a property that is undefined or left out stays as it is. */
export type ContactUpsert = Pick<ContactFields, "email"> & Patch<Omit<ContactFields, "email">>;

/** The outcome of an item: the contact, or the refusal. */
export type UpsertOutcome = { status: "created" | "updated" | "unchanged"; id: string } | { error: ApiError };

export interface BulkOutcome extends TakenSlots {
  /** One per item, in their order. */
  outcomes: UpsertOutcome[];
  /** Contacts that were made. */
  created: number;
  /** Ids of the contacts that were there and were changed. */
  updated: string[];
}

/** The values of a contact that an upsert may change. */
interface Values {
  firstName: string | null;
  lastName: string | null;
  fields: FieldValues;
}

const NOTHING: Values = { firstName: null, lastName: null, fields: {} };

const applied = ({ firstName, lastName, fields }: Values, item: ContactUpsert): Values => ({
  firstName: item.firstName === undefined ? firstName : item.firstName,
  lastName: item.lastName === undefined ? lastName : item.lastName,
  fields: item.fields ? changedFields(fields, item.fields) : fields,
});

/** The items of one address. */
interface Person {
  address: StoredAddress;
  /** Their places in the call. */
  places: number[];
}

interface PresentContact extends Values {
  id: string;
  email: string;
}

/**
 * Makes or changes a contact per address, in the caller's transaction. Items with the same address, in any spelling, are
 * settled in their order: the first one that makes the contact is `created`, those behind it change it. Every call takes
 * its addresses in the same order, so that calls at once do not deadlock. A contact keeps the spelling of its address.
 * An erased address is refused, and so is a new one for which the plan has no contact slot left, with all its items.
 * @param items valid addresses, checked custom fields
 */
export async function upsertContacts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  items: readonly ContactUpsert[],
): Promise<BulkOutcome> {
  const outcomes = new Map<number, UpsertOutcome>();
  /** Applies the items of a person in order. @returns the values after the last one */
  const settle = ({ places }: Person, id: string, before?: Values): Values => {
    let values = before;
    for (const place of places) {
      const item = items[place];
      if (!item) continue;
      const after = applied(values ?? NOTHING, item);
      const status = values === undefined ? "created" : isDeepStrictEqual(values, after) ? "unchanged" : "updated";
      outcomes.set(place, { status, id });
      values = after;
    }
    return values ?? NOTHING;
  };

  const made = new Map<string, Person & { id: string }>();
  const updated: string[] = [];
  // Once, unless another transaction makes a contact between the two statements.
  for (let people = groupByAddress(items); people.size > 0; ) {
    const changed: PresentContact[] = [];
    for (const { id, email, ...before } of await lockPresent(em, tenant, [...people.keys()])) {
      const person = people.get(email);
      if (!person) continue;
      const after = settle(person, id, before);
      if (!isDeepStrictEqual(before, after)) changed.push({ id, email, ...after });
      people.delete(email);
    }
    await updateContacts(em, tenant, changed);
    updated.push(...changed.map(({ id }) => id));

    const drafts = [...people.values()].map((person) => {
      const id = newId("contact");
      return { ...person.address, ...settle(person, id), id };
    });
    const inserted = await insertContacts(em, vault, tenant, drafts);
    for (const { id, email } of drafts) {
      const person = people.get(email);
      const outcome = inserted.get(email);
      if (!person || outcome === undefined) continue;
      if (outcome === "made") made.set(email, { ...person, id });
      else for (const place of person.places) outcomes.set(place, { error: personErased() });
      people.delete(email);
    }
  }
  const { slots, refused } = await takeSlotsInOrder(em, tenant, [...made.keys()]);
  await takeBack(em, tenant, refused);
  for (const email of refused) {
    for (const place of made.get(email)?.places ?? []) outcomes.set(place, { error: slotsExceeded(1, 0) });
    made.delete(email);
  }
  await emitCreated(
    em,
    tenant,
    [...made.values()].map(({ id }) => id),
  );
  return { outcomes: items.flatMap((_, place) => outcomes.get(place) ?? []), created: made.size, updated, slots };
}

/** By a statement of its own behind the slots, which decide on the contacts that stay. */
async function emitCreated(em: EntityManager, tenant: Tenant, ids: string[]): Promise<void> {
  if (ids.length === 0) return;
  const from = sql`contacts c where c.id = any(${ids})`;
  await emit(em, tenant, "contact.created", { record: contactRecord("c"), from });
}

/** Deletes contacts that this transaction has made. They have no event yet, and no other transaction sees them. */
async function takeBack(em: EntityManager, tenant: Tenant, emails: string[]): Promise<void> {
  if (emails.length === 0) return;
  await kysely(em).deleteFrom("contacts").where(ofTenant(tenant)).where("email", "in", emails).execute();
}

function groupByAddress(items: readonly ContactUpsert[]): Map<string, Person> {
  const people = new Map<string, Person>();
  for (const [place, { email }] of items.entries()) {
    const address = storedAddress(email);
    const person = people.get(address.email);
    if (person) person.places.push(place);
    else people.set(address.email, { address, places: [place] });
  }
  return people;
}

async function lockPresent(em: EntityManager, tenant: Tenant, emails: string[]): Promise<PresentContact[]> {
  const { rows } = await sql<PresentContact>`
    select id, email, first_name as "firstName", last_name as "lastName", fields
    from (${lockedContacts(tenant, emails)}) l`.execute(kysely(em));
  return rows;
}

/** The columns of many contacts as the parameters of `unnest`. */
const columnsOf = (contacts: readonly (Values & { id: string })[]) => sql`
  ${contacts.map(({ id }) => id)}::text[],
  ${contacts.map(({ firstName }) => firstName)}::text[],
  ${contacts.map(({ lastName }) => lastName)}::text[],
  ${contacts.map(({ fields }) => JSON.stringify(fields))}::text[]`;

/** Changes contacts that this transaction has locked under their tenant. */
async function updateContacts(em: EntityManager, tenant: Tenant, contacts: readonly PresentContact[]): Promise<void> {
  if (contacts.length === 0) return;
  const { rows } = await sql<{ emitted: boolean }>`
    with written as (
      update contacts c set first_name = g.first_name, last_name = g.last_name, fields = g.fields::jsonb
      from unnest(${columnsOf(contacts)}) as g (id, first_name, last_name, fields)
      where c.id = g.id
      returning c.*, false as created
    ), ${emitWritten(tenant, CONTACT_WRITTEN, contactRecord)}
    select exists (select from emitted) as emitted`.execute(kysely(em));
  if (rows[0]?.emitted) notifyRelayAfterCommit(em);
}

/** @returns the addresses of those that were made, because no other contact has them, and of those that were erased */
async function insertContacts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  contacts: readonly (StoredAddress & PresentContact)[],
): Promise<Map<string, "made" | "erased">> {
  if (contacts.length === 0) return new Map();
  const { rows } = await sql<{ email: string; outcome: "made" | "erased" }>`
    with given as materialized (
      select g.*, ${isErased(tenant, sql.ref("g.hash"))} as erased
      from unnest(${columnsOf(contacts)}, ${contacts.map(({ email }) => email)}::text[],
        ${contacts.map(({ emailSpelling }) => emailSpelling)}::text[],
        ${contacts.map(({ email }) => erasedHash(vault, tenant, email))}::text[])
        as g (id, first_name, last_name, fields, email, email_spelling, hash)
    ), made as (
      insert into contacts (id, team_id, environment, email, email_spelling, first_name, last_name, fields, email_status)
      select g.id, ${tenant.teamId}, ${tenant.environment}, g.email, g.email_spelling, g.first_name, g.last_name,
        g.fields::jsonb, ${emailStatusOf(tenant, sql.ref("g.email"))}
      from given g where not g.erased
      order by g.email
      on conflict (team_id, environment, email) do nothing
      returning email
    )
    select email, 'made' as outcome from made
    union all select email, 'erased' from given where erased`.execute(kysely(em));
  return new Map(rows.map(({ email, outcome }) => [email, outcome]));
}
