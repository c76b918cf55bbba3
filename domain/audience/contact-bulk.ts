import { isDeepStrictEqual } from "node:util";
import { sql } from "kysely";
import type { FieldValues } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { type StoredAddress, storedAddress } from "../address.ts";
import { hashAddress, isErased, personErased } from "../erasure/erased-addresses.ts";
import type { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Patch } from "../patch.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { contactRecord } from "../webhooks/records.ts";
import { changeContacts, lockedContacts } from "./contact-rows.ts";
import { slotsExceeded, type TakenSlots, takeSlotsInOrder } from "./contact-slots.ts";
import type { ContactFields } from "./contacts.ts";
import { emailStatusOf } from "./email-status.ts";
import { changedFields } from "./field-values.ts";
import { type ConsentAnswer, setConsents } from "./tracking-consents.ts";

/** A contact by its address; a property that is undefined or left out stays as it is. */
export type ContactUpsert = Pick<ContactFields, "email"> &
  Patch<Omit<ContactFields, "email">> & { consent?: ConsentAnswer | undefined };

export type UpsertOutcome = { status: "created" | "updated" | "unchanged"; id: string } | { error: ApiError };

export interface BulkOutcome extends TakenSlots {
  outcomes: UpsertOutcome[];
  created: number;
  updated: string[];
}

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

interface Person {
  address: StoredAddress;
  /** In order, with their positions in the call. */
  items: [position: number, item: ContactUpsert][];
}

interface PresentContact extends Values {
  id: string;
  email: string;
}

/**
 * Makes or changes a contact per address, in the caller's transaction; a contact keeps its address's spelling. Items with the
 * same address are settled in order. An erased address is refused, and so is a new one beyond the contact slots.
 * @param items valid addresses, checked custom fields
 */
export async function upsertContacts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  items: readonly ContactUpsert[],
): Promise<BulkOutcome> {
  const outcomes: UpsertOutcome[] = [];
  const waiting = groupByAddress(items);
  const made = new Map<string, Person & { id: string }>();
  const updated: string[] = [];
  // One pass, unless another transaction makes a contact between the two statements of a pass.
  while (waiting.size > 0) {
    updated.push(...(await changePresent(em, tenant, waiting, outcomes)));
    for (const person of await makeMissing(em, vault, tenant, waiting, outcomes)) {
      made.set(person.address.email, person);
    }
  }
  const { slots, refused } = await takeSlotsInOrder(em, tenant, [...made.keys()]);
  if (refused.length > 0) {
    // They have no event yet, and no other transaction sees them.
    await kysely(em).deleteFrom("contacts").where(ofTenant(tenant)).where("email", "in", refused).execute();
  }
  for (const email of refused) {
    const person = made.get(email);
    if (person) refuse(person, slotsExceeded(1, 0), outcomes);
    made.delete(email);
  }
  const ids = [...made.values()].map(({ id }) => id);
  // Only now it is known which contacts stay.
  const from = sql`contacts c where c.id = any(${ids})`;
  if (ids.length > 0) await emit(em, tenant, "contact.created", { record: contactRecord("c"), from });
  const consented = await storeConsents(em, vault, tenant, items, outcomes);
  return { outcomes, created: ids.length, updated: [...new Set([...updated, ...consented])], slots };
}

/** Stores the answers of the people whose items did not fail. @returns the ids of contacts that were not made for it */
async function storeConsents(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  items: readonly ContactUpsert[],
  outcomes: UpsertOutcome[],
): Promise<string[]> {
  const said = items.flatMap(({ email, consent }, i) => {
    const outcome = outcomes[i];
    return consent && outcome && "id" in outcome ? [{ email, ...consent, outcome }] : [];
  });
  const stored = await setConsents(em, vault, tenant, said, "API");
  return said.flatMap(({ email, outcome }) => {
    if (outcome.status === "created" || !stored.has(storedAddress(email).email)) return [];
    outcome.status = "updated";
    return [outcome.id];
  });
}

/** @param before values of the contact; none for one that is made @returns the values after the last item */
function apply({ items }: Person, id: string, outcomes: UpsertOutcome[], before?: Values): Values {
  let values = before;
  for (const [position, item] of items) {
    const after = applied(values ?? NOTHING, item);
    const status = values === undefined ? "created" : isDeepStrictEqual(values, after) ? "unchanged" : "updated";
    outcomes[position] = { status, id };
    values = after;
  }
  return values ?? NOTHING;
}

function refuse({ items }: Person, error: ApiError, outcomes: UpsertOutcome[]): void {
  for (const [position] of items) outcomes[position] = { error };
}

/** @returns the ids of the contacts that it changed */
async function changePresent(
  em: EntityManager,
  tenant: Tenant,
  waiting: Map<string, Person>,
  outcomes: UpsertOutcome[],
): Promise<string[]> {
  const changed: PresentContact[] = [];
  for (const { id, email, ...before } of await lockPresent(em, tenant, [...waiting.keys()])) {
    const person = waiting.get(email);
    if (!person) continue;
    const after = apply(person, id, outcomes, before);
    if (!isDeepStrictEqual(before, after)) changed.push({ id, email, ...after });
    waiting.delete(email);
  }
  await updateContacts(em, tenant, changed);
  return changed.map(({ id }) => id);
}

/** Makes contacts of those who have none. A person for whom another transaction has just made one stays in `waiting`. */
async function makeMissing(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  waiting: Map<string, Person>,
  outcomes: UpsertOutcome[],
): Promise<(Person & { id: string })[]> {
  const people = [...waiting.values()].map((person) => ({ ...person, id: newId("contact") }));
  const contacts = people.map((person) => ({
    ...person.address,
    ...apply(person, person.id, outcomes),
    id: person.id,
  }));
  const inserted = await insertContacts(em, vault, tenant, contacts);
  const made: typeof people = [];
  for (const person of people) {
    const { email } = person.address;
    const outcome = inserted.get(email);
    if (outcome === undefined) continue;
    if (outcome === "made") made.push(person);
    else refuse(person, personErased(), outcomes);
    waiting.delete(email);
  }
  return made;
}

function groupByAddress(items: readonly ContactUpsert[]): Map<string, Person> {
  const people = new Map<string, Person>();
  for (const [position, item] of items.entries()) {
    const address = storedAddress(item.email);
    const person = people.get(address.email);
    if (person) person.items.push([position, item]);
    else people.set(address.email, { address, items: [[position, item]] });
  }
  return people;
}

async function lockPresent(em: EntityManager, tenant: Tenant, emails: string[]): Promise<PresentContact[]> {
  const { rows } = await sql<PresentContact>`
    select id, email, first_name as "firstName", last_name as "lastName", fields
    from (${lockedContacts(tenant, emails)}) l`.execute(kysely(em));
  return rows;
}

/** As parameters of `unnest`. */
const columnsOf = (contacts: readonly (Values & { id: string })[]) => sql`
  ${contacts.map(({ id }) => id)}::text[],
  ${contacts.map(({ firstName }) => firstName)}::text[],
  ${contacts.map(({ lastName }) => lastName)}::text[],
  ${contacts.map(({ fields }) => JSON.stringify(fields))}::text[]`;

/** The transaction has locked them under their tenant. */
async function updateContacts(em: EntityManager, tenant: Tenant, contacts: readonly PresentContact[]): Promise<void> {
  if (contacts.length === 0) return;
  await changeContacts(
    em,
    tenant,
    sql`
      update contacts c set first_name = g.first_name, last_name = g.last_name, fields = g.fields::jsonb
      from unnest(${columnsOf(contacts)}) as g (id, first_name, last_name, fields)
      where c.id = g.id`,
  );
}

/** @returns the addresses that were made and those that were erased; none of those that another contact has */
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
        ${contacts.map(({ email }) => hashAddress(vault, tenant, email))}::text[])
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
