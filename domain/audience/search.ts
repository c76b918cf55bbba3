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

const MAX_FOUND = 25;
/** Records whose addresses are put in order. A walk in their order would read all: addresses commonly begin with the name. */
const MAX_SORTED = 1_000;

/** SQL, as its index has it: the address on a line of its own, then the full name, of which each part begins behind a space. */
const ADDRESS_AND_NAME = sql`lower(r.email || chr(10) || coalesce(r.first_name, '') || ' ' || coalesce(r.last_name, ''))`;
/** The index holds groups of three letters and digits: two spaces stand before a word, and one behind it. Any part without one is a read of all. */
const HAS_GROUP = /[\p{L}\p{N}]{3}|[\p{L}\p{N}]{2}[^\p{L}\p{N}]|[^\p{L}\p{N}][\p{L}\p{N}]/u;

/** SQL: what may find a record `r`, each a search of its own, with the order where an index has it. */
function conditionsOf(table: SearchedTable, text: string): RawBuilder<SqlBool>[] {
  const part = spellingOf(text).normalize("NFC").replace(/\s+/g, " ");
  const holds = (before: string) =>
    sql<SqlBool>`${ADDRESS_AND_NAME} like ${`%${before}${part.replace(/[\\%_]/g, "\\$&")}%`}`;
  const beginning = sql<SqlBool>`r.email ^@ ${part} order by r.email`;
  if (table === "suppressions") return [beginning];
  if (part.length >= 3 && HAS_GROUP.test(part)) return [holds("")];
  return /[\p{L}\p{N}]/u.test(part) ? [beginning, holds("\n"), holds(" ")] : [beginning];
}

/**
 * A query for the addresses that a text finds, at most 25 in their order; where more than 1,000 have it, out of any 1,000. It finds
 * people by any part of the address or of the full name, and by the beginning of the address or of a word of the name where the
 * text has fewer than three characters or its index cannot serve it; suppressions by the beginning of the address.
 * @param listId only subscribers that it has in any status
 */
export function foundAddresses(
  tenant: Tenant,
  table: SearchedTable,
  text: string,
  listId?: string,
): RawBuilder<{ email: string }> {
  const onList = sql`and exists (
    select from subscriptions b where ${ofTenant(tenant, "b")} and b.list_id = ${listId} and b.subscriber_id = r.id)`;
  const searches = conditionsOf(table, text).map(
    (condition) => sql`
    (select r.email from ${sql.table(table)} r where ${ofTenant(tenant, "r")} ${listId === undefined ? sql`` : onList} and ${condition}
      limit ${sql.lit(MAX_SORTED)})`,
  );
  return sql`select f.email from (${sql.join(searches, sql` union `)}) f order by f.email limit ${sql.lit(MAX_FOUND)}`;
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
    where ${ofTenant(tenant, "r")} and r.email in (${foundAddresses(tenant, table, text, listId)})
    order by r.email`.execute(kysely(em));
  return new JsonText(`[${rows.map(({ record }) => record).join()}]`);
}
