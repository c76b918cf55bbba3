import { type RawBuilder, sql } from "kysely";
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

/** SQL, as their indexes have it. */
const FULL_NAME = sql`lower(r.first_name || coalesce(' ' || r.last_name, '')) collate "C"`;
const LAST_NAME = sql`lower(r.last_name) collate "C"`;

/**
 * Finds records by the beginning of an address, and people by that of a full or last name, too: at most 25 in the order of their
 * addresses, as the API shows them. An index serves each; that of addresses does where the database's collation is C or builtin.
 * @param listId only subscribers that it has in any status
 */
export async function searchRecords(
  em: EntityManager,
  tenant: Tenant,
  table: SearchedTable,
  beginning: string,
  listId?: string,
): Promise<JsonText<Found[]>> {
  const onList = sql`and exists (
    select from subscriptions b where ${ofTenant(tenant, "b")} and b.list_id = ${listId} and b.subscriber_id = r.id)`;
  const found = (column: RawBuilder<unknown>, text: unknown) => sql`
    (select r.id from ${sql.table(table)} r where ${ofTenant(tenant, "r")} and ${column} ^@ ${text} ${listId === undefined ? sql`` : onList}
      order by ${column} limit ${sql.lit(MAX_FOUND)})`;
  const name = sql`lower(${beginning.trim().replace(/\s+/g, " ")})`;
  const searches = [found(sql.ref("r.email"), spellingOf(beginning).normalize("NFC"))];
  if (table !== "suppressions") searches.push(found(FULL_NAME, name), found(LAST_NAME, name));
  const { rows } = await sql<{ record: string }>`
    select ${RECORDS[table]("r")} as record from ${sql.table(table)} r
    where ${ofTenant(tenant, "r")} and r.id in (${sql.join(searches, sql` union all `)})
    order by r.email limit ${sql.lit(MAX_FOUND)}`.execute(kysely(em));
  return new JsonText(`[${rows.map(({ record }) => record).join()}]`);
}
