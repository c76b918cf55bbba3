import { type RawBuilder, sql } from "kysely";
import { JsonText } from "../../db/json.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { spellingOf } from "../address.ts";
import type { EventObject } from "../webhooks/objects.ts";
import { contactRecord, subscriberRecord, suppressionRecord } from "../webhooks/records.ts";
import { segmentContacts } from "./segments/segments.ts";

export const SEARCHED_TABLES = ["subscribers", "contacts", "suppressions"] as const;
export type SearchedTable = (typeof SEARCHED_TABLES)[number];

const RECORDS = { subscribers: subscriberRecord, contacts: contactRecord, suppressions: suppressionRecord };
type Found = EventObject<"subscriber" | "contact" | "suppression">;

const MAX_FOUND = 25;

/** SQL: what is searched, as the indexes have it, and the text that it begins with. @param row an alias */
function searchedColumns(row: string, table: SearchedTable, beginning: string) {
  const column = (name: string) => sql.ref(`${row}.${name}`);
  const name = sql`lower(${beginning.trim().replace(/\s+/g, " ")})`;
  const fullName = sql`lower(${column("first_name")} || coalesce(' ' || ${column("last_name")}, '')) collate "C"`;
  const names = [fullName, sql`lower(${column("last_name")}) collate "C"`].map((each) => [each, name] as const);
  const address = [column("email"), sql`${spellingOf(beginning).normalize("NFC")}`] as const;
  return table === "suppressions" ? [address] : [address, ...names];
}

/**
 * Finds records by the beginning of an address, and people by that of a full or last name, too: at most 25 in the order of their
 * addresses, as the API shows them. An index serves each; that of addresses does where the database's collation is C or builtin.
 * @param listIds only subscribers that one of them has in any status
 */
export function searchRecords(
  em: EntityManager,
  tenant: Tenant,
  table: SearchedTable,
  beginning: string,
  listIds?: readonly string[],
): Promise<JsonText<Found[]>> {
  const onList = sql`and exists (
    select from subscriptions b where ${ofTenant(tenant, "b")} and b.list_id = any(${[...(listIds ?? [])]})
      and b.subscriber_id = r.id)`;
  const searches = searchedColumns("r", table, beginning).map(
    ([column, text]) => sql`
    (select r.id from ${sql.table(table)} r where ${ofTenant(tenant, "r")} and ${column} ^@ ${text} ${listIds ? onList : sql``}
      order by ${column} limit ${sql.lit(MAX_FOUND)})`,
  );
  return readRecords(em, tenant, table, sql.join(searches, sql` union all `));
}

/** The same of contacts, in a segment. @throws {ApiError} as `segmentContacts` */
export async function searchSegment(
  em: EntityManager,
  tenant: Tenant,
  segmentId: string,
  beginning: string,
): Promise<JsonText<Found[]>> {
  const matches = searchedColumns("c", "contacts", beginning).map(([column, text]) => sql`${column} ^@ ${text}`);
  const members = await segmentContacts(em, tenant, segmentId, sql`(${sql.join(matches, sql` or `)})`);
  const ids = sql`select m.id from (${members}) m order by m.email limit ${sql.lit(MAX_FOUND)}`;
  return readRecords(em, tenant, "contacts", ids);
}

async function readRecords(
  em: EntityManager,
  tenant: Tenant,
  table: SearchedTable,
  ids: RawBuilder<unknown>,
): Promise<JsonText<Found[]>> {
  const { rows } = await sql<{ record: string }>`
    select ${RECORDS[table]("r")} as record from ${sql.table(table)} r
    where ${ofTenant(tenant, "r")} and r.id in (${ids})
    order by r.email limit ${sql.lit(MAX_FOUND)}`.execute(kysely(em));
  return new JsonText(`[${rows.map(({ record }) => record).join()}]`);
}
