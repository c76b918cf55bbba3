import { sql } from "kysely";
import type { ContactFieldType } from "../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError } from "../errors.ts";
import { columnKey, OWN_NAMES, usualConsent } from "../import/columns.ts";
import { holdPlace } from "../teams/record-limit.ts";
import { type ChangedContacts, changeContacts } from "./contact-rows.ts";
import { type FieldTypes, fieldProblem, valueOfText } from "./field-values.ts";

export const MAX_FIELDS = 50;

const MAX_FIELD_NAME_LENGTH = 63;

/** A name as a merge tag and a column of an import can carry it. */
const FIELD_NAME = /^[a-z][a-z0-9_]*$/;

const RESERVED_NAMES: readonly string[] = [...OWN_NAMES, "id", "email_status", "constructor"];

/** An import could not tell a custom field of the name from a column that it reads for itself. A state is one of an address. */
const isReserved = (name: string): boolean =>
  RESERVED_NAMES.includes(name) || (name !== "state" && usualConsent(columnKey(name)) !== undefined);

/** From the one that few texts spell. A number with a leading 0 or + is the text of a code or a telephone. */
const LIKELY_TYPES = ["date", "number", "boolean"] as const;

/** A field for a column of a file, by its header and some of its texts. */
export function suggestField(header: string, texts: readonly string[]): { name: string; type: ContactFieldType } {
  const plain = header.normalize("NFKD").replace(/\p{M}/gu, "").toLowerCase().replaceAll("ß", "ss");
  const name = plain
    .replace(/[^a-z0-9]+/g, "_")
    .replace(/^[^a-z]+|_$/g, "")
    .slice(0, MAX_FIELD_NAME_LENGTH);
  const given = texts.map((text) => text.trim()).filter((text) => text !== "");
  const fits = (type: ContactFieldType) =>
    given.every((text) => fieldProblem(new Map([["", type]]), "", valueOfText(type, text)) === undefined);
  const isCode = given.some((text) => /^(?:0\d|\+)/.test(text));
  const type = given.length > 0 && !isCode ? (LIKELY_TYPES.find(fits) ?? "text") : "text";
  return { name: isReserved(name) ? `${name}_field` : name, type };
}

const beingDeleted = (name: string) =>
  new ApiError(
    "resource_state_invalid",
    `The field ${name} is being deleted; run field:delete ${name} again to finish.`,
  );

/**
 * Declares a custom field, in the caller's transaction.
 * @throws {ApiError} `validation_failed`, `resource_already_exists`, `resource_limit_reached`; `resource_state_invalid` while
 * an old field of the name is being deleted
 */
export async function createField(
  em: EntityManager,
  tenant: Tenant,
  name: string,
  type: ContactFieldType,
): Promise<void> {
  if (!FIELD_NAME.test(name) || name.length > MAX_FIELD_NAME_LENGTH || isReserved(name)) {
    throw new ApiError(
      "validation_failed",
      `A field's name has at most ${MAX_FIELD_NAME_LENGTH} lower-case letters, digits and underscores, begins with a letter, and is none of ${RESERVED_NAMES.join(", ")}, and no usual name of a consent, such as status.`,
      { param: "name" },
    );
  }
  await holdPlace(em, tenant, { table: "contact_fields", name: "custom fields" }, MAX_FIELDS);
  const created = await kysely(em)
    .insertInto("contact_fields")
    .values({ team_id: tenant.teamId, environment: tenant.environment, name, type })
    .onConflict((conflict) => conflict.doNothing())
    .returning("name")
    .executeTakeFirst();
  if (created) return;
  if (!(await readFields(em, tenant)).some((field) => field.name === name)) throw beingDeleted(name);
  throw new ApiError("resource_already_exists", `There is a field ${name}; delete it to give it another type.`, {
    param: "name",
  });
}

const fieldsOf = (em: EntityManager, tenant: Tenant) =>
  kysely(em)
    .selectFrom("contact_fields")
    .select(["name", "type"])
    .where(ofTenant(tenant))
    .where("deleted_at", "is", null)
    .orderBy("name");

export const readFields = (em: EntityManager, tenant: Tenant) => fieldsOf(em, tenant).execute();

export const readFieldTypes = async (em: EntityManager, tenant: Tenant): Promise<FieldTypes> =>
  new Map((await readFields(em, tenant)).map(({ name, type }) => [name, type]));

/** None of the fields is deleted until the transaction ends. */
export async function lockFieldTypes(em: EntityManager, tenant: Tenant): Promise<FieldTypes> {
  // A deletion updates the row first, and so waits for this transaction.
  const rows = await fieldsOf(em, tenant).forShare().execute();
  return new Map(rows.map(({ name, type }) => [name, type]));
}

export interface FieldUse {
  /** Those that have a value. */
  contacts: number;
  /** Segments that ask for it; they cannot be evaluated without it. */
  segments: { id: string; name: string }[];
}

/** @returns what a deletion of the field would touch */
export async function readFieldUse(em: EntityManager, tenant: Tenant, name: string): Promise<FieldUse> {
  const { rows } = await sql<FieldUse>`
    select (select count(*)::int from contacts c where ${ofTenant(tenant, "c")} and jsonb_exists(c.fields, ${name})) as contacts,
      coalesce((
        select json_agg(json_build_object('id', s.id, 'name', s.name) order by s.name, s.id) from segments s
        where ${ofTenant(tenant, "s")} and s.deleted_at is null
          and strpos(s.conditions::text, ${`"fields.${name}"`}) > 0), '[]') as segments`.execute(kysely(em));
  const [use] = rows;
  if (!use) throw new Error("a count returned no row");
  return use;
}

const DELETE_ROWS = 5_000;

/**
 * Deletes a custom field with its values, in many transactions so that no contact is locked for long. When it is cut off, the
 * same call finishes it.
 * @returns the contacts that had a value @throws {ApiError} `not_found`
 */
export async function deleteField(em: EntityManager, tenant: Tenant, name: string): Promise<number> {
  await transaction(em, async (tx) => {
    const { numUpdatedRows } = await kysely(tx)
      .updateTable("contact_fields")
      .set({ deleted_at: sql<string>`coalesce(deleted_at, now())` })
      .where(ofTenant(tenant))
      .where("name", "=", name)
      .executeTakeFirstOrThrow();
    if (numUpdatedRows === 0n) throw new ApiError("not_found", `There is no field ${name}.`);
  });
  let removed = 0;
  for (let after = ""; ; ) {
    const batch = await transaction(em, async (tx) => {
      // A bulk write may hold some of the contacts for as long.
      await limitStatements(tx, PATIENT_MS);
      return removeValues(tx, tenant, name, after);
    });
    removed += batch.contacts;
    if (batch.contacts < DELETE_ROWS) break;
    after = batch.lastEmail;
  }
  await transaction(em, (tx) =>
    kysely(tx).deleteFrom("contact_fields").where(ofTenant(tenant)).where("name", "=", name).execute(),
  );
  return removed;
}

/** Removes the values of the contacts that come next. @param after the last address of the batch before, "" at first */
function removeValues(em: EntityManager, tenant: Tenant, name: string, after: string): Promise<ChangedContacts> {
  return changeContacts(
    em,
    tenant,
    sql`update contacts c set fields = c.fields - ${name}::text from present p where c.id = p.id`,
    sql`
      select c.id from contacts c
      where ${ofTenant(tenant, "c")} and c.email > ${after} and jsonb_exists(c.fields, ${name})
      order by c.email limit ${DELETE_ROWS} for update`,
  );
}
