import { type RawBuilder, type SqlBool, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { spellingOf } from "../address.ts";
import type { EventObject } from "../webhooks/objects.ts";
import { contactRecord, subscriberRecord, suppressionRecord } from "../webhooks/records.ts";

export const SEARCHED_TABLES = ["subscribers", "contacts", "suppressions"] as const;
export type SearchedTable = (typeof SEARCHED_TABLES)[number];

const RECORDS = { subscribers: subscriberRecord, contacts: contactRecord, suppressions: suppressionRecord };
type Found = EventObject<"subscriber" | "contact" | "suppression">;

/** One more than the console shows, which tells it that there are others. */
export const MAX_FOUND = 26;
/** Records whose addresses are put in order. A walk in their order would read all: addresses commonly begin with the name. */
export const MAX_SORTED = 1_000;

/** SQL of a record `r`, as its index has it: the address, its other spelling and the full name, on a line each. */
const ADDRESS_AND_NAME = sql`lower(r.email || chr(10) || coalesce(r.email_spelling, '') || chr(10) || coalesce(r.first_name, '') ||
  ' ' || coalesce(r.last_name, ''))`;

const partOf = (text: string) => spellingOf(text).normalize("NFC");

/** SQL: whether a record `r` has a text in its address or its full name. */
export function hasPart(text: string): RawBuilder<SqlBool> {
  const part = partOf(text);
  // Names keep the spaces that they were written with, and letters with accents as one character or as two.
  const forms = new Set([part, part.normalize("NFD")]);
  const patterns = [...forms].map((form) => `%${form.replace(/[\\%_]/g, "\\$&").replace(/\s+/g, "%")}%`);
  return sql`(${sql.join(
    patterns.map((pattern) => sql`${ADDRESS_AND_NAME} like ${pattern}`),
    sql` or `,
  )})`;
}

/** The index holds groups of three letters and digits: two spaces stand before a word, and one behind it. Any part without one is a read of all. */
const HAS_GROUP = /[\p{L}\p{N}]{3}|[\p{L}\p{N}]{2}[^\p{L}\p{N}]|[^\p{L}\p{N}][\p{L}\p{N}]/u;

/** SQL: what finds a record `r`, with the order where an index has it. */
function conditionOf(table: SearchedTable, text: string): RawBuilder<SqlBool> {
  const part = partOf(text);
  if (table === "suppressions" || part.length < 3 || !HAS_GROUP.test(part))
    return sql`r.email ^@ ${part} order by r.email`;
  return hasPart(text);
}

/**
 * A query for the addresses that a text finds, at most 26 in their order; where more than 1,000 have it, out of any 1,000. It finds
 * people by any part of the address or of the full name; by the beginning of the address alone where the text has fewer than three
 * characters or the index cannot serve it, and suppressions so, too.
 * @param listId only subscribers that it has in any status @param limit of the addresses, in place of 26
 */
export function foundAddresses(
  tenant: Tenant,
  table: SearchedTable,
  text: string,
  { listId, limit = MAX_FOUND }: { listId?: string | undefined; limit?: number } = {},
): RawBuilder<{ email: string }> {
  const onList = sql`and exists (
    select from subscriptions b where ${ofTenant(tenant, "b")} and b.list_id = ${listId} and b.subscriber_id = r.id)`;
  return sql`
    select f.email from (
      select r.email from ${sql.table(table)} r
      where ${ofTenant(tenant, "r")} ${listId === undefined ? sql`` : onList} and ${conditionOf(table, text)} limit ${sql.lit(MAX_SORTED)}) f
    order by f.email limit ${sql.lit(limit)}`;
}

/** Finds records as the API shows them, see `foundAddresses`. */
export async function searchRecords(
  em: EntityManager,
  tenant: Tenant,
  table: SearchedTable,
  text: string,
  listId?: string,
): Promise<JsonText<Found[]>> {
  const { rows } = await sql<{ record: string }>`
    select ${RECORDS[table]("r")} as record from ${sql.table(table)} r
    where ${ofTenant(tenant, "r")} and r.email in (${foundAddresses(tenant, table, text, { listId })})
    order by r.email`.execute(kysely(em));
  return new JsonText(`[${rows.map(({ record }) => record).join()}]`);
}
