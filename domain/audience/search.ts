import { sql } from "kysely";
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

/**
 * Finds records by the beginning of their addresses, at most 25 in alphabetical order, as the API shows them. The index of
 * addresses serves it where the database's collation is C or builtin.
 */
export async function searchAddresses(
  em: EntityManager,
  tenant: Tenant,
  table: SearchedTable,
  beginning: string,
): Promise<JsonText<Found[]>> {
  const { rows } = await sql<{ record: string }>`
    select ${RECORDS[table]("r")} as record from ${sql.table(table)} r
    where ${ofTenant(tenant, "r")} and r.email ^@ ${spellingOf(beginning).normalize("NFC")}
    order by r.email limit ${sql.lit(MAX_FOUND)}`.execute(kysely(em));
  return new JsonText(`[${rows.map(({ record }) => record).join()}]`);
}
