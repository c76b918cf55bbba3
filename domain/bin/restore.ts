import { type RawBuilder, sql } from "kysely";
import type { Env } from "../../config/env.ts";
import { columnsOf } from "../../db/columns.ts";
import { BIN_DAYS, type BinnedKind } from "../../db/entities/bin.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { restoreSubscriptions } from "../audience/binned-subscriptions.ts";
import { touchNewsletters } from "../audience/lists.ts";
import { IS_NOT_BINNED, MAX_SEGMENTS } from "../audience/segments/segments.ts";
import { ApiError } from "../errors.ts";
import { MAX_FORMS } from "../forms/forms.ts";
import type { Vault } from "../secrets/crypto.ts";
import { MAX_TEMPLATES } from "../sends/drafts/templates.ts";
import { holdPlace, type LimitedRecords } from "../teams/record-limit.ts";
import { type BinnedRecord, binnedRows, type Table, tablesOf } from "./bin.ts";

type Limits = Pick<Env, "MAX_NEWSLETTERS" | "MAX_CAMPAIGNS" | "MAX_LISTS">;

interface Restoring {
  em: EntityManager;
  tenant: Tenant;
  /** With the instant as text of Postgres. */
  record: BinnedRecord & { deletedAt: string };
}

export interface Restored extends BinnedRecord {
  /** Names of the records that belonged to it and were deleted: `list “News”`. */
  gone: string[];
}

/** The fields in the rows of a record that hold ids of rows elsewhere. */
const REFERENCES: Partial<Record<BinnedKind, readonly (readonly [source: Table, field: string, target: Table])[]>> = {
  newsletter: [
    ["newsletter_lists", "list_id", "lists"],
    ["newsletters", "segment_id", "segments"],
  ],
  campaign: [
    ["campaigns", "segment_id", "segments"],
    ["campaigns", "account_ids", "email_accounts"],
  ],
  sequence: [
    ["sequences", "list_id", "lists"],
    ["sequences", "segment_id", "segments"],
  ],
  list: [["newsletter_lists", "newsletter_id", "newsletters"]],
  segment: [["campaigns", "id", "campaigns"]],
  form: [["forms", "list_id", "lists"]],
};

/** SQL: rows `t` of a table that a record may have again: none that was sent, or given another segment, since. */
const mayRefer = ({ tenant, record }: Restoring): Partial<Record<Table, RawBuilder<unknown>>> => ({
  segments: IS_NOT_BINNED,
  campaigns: sql`t.status = 'DRAFT' and t.segment_id is null`,
  newsletters: sql`(t.status = 'DRAFT' or exists (select from sends s
    where s.id = t.send_id and ${ofTenant(tenant, "s")} and s.created_at <= ${record.deletedAt}::timestamptz))`,
});

/**
 * Restores a record of the bin, once, in the caller's transaction: under its id, with all that belongs to it and is still there.
 * @throws {ApiError} `not_found` unless it is in the bin; `resource_limit_reached`; `resource_state_invalid` for a form without its list
 */
export async function restoreRecord(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  id: string,
  limits: Limits,
): Promise<Restored> {
  // Of two who restore it at once, the second waits here, and then does not find it.
  const { rows } = await sql<Restoring["record"]>`
    select b.id, b.kind, b.name, b.deleted_at as "deletedAt" from bin b
    where b.id = ${id} and ${ofTenant(tenant, "b")} and b.deleted_at > now() - make_interval(days => ${BIN_DAYS})
    for update`.execute(kysely(em));
  const [record] = rows;
  if (!record) throw new ApiError("not_found", "It is not here any more: it was restored, or its time has passed.");
  const { kind, name } = record;
  const restoring = { em, tenant, record };
  const { found, gone } = await lockReferences(restoring);
  if (kind === "form" && gone.length > 0) {
    const message = `The ${gone[0]} of this form was deleted. Restore that first, if it is still here.`;
    throw new ApiError("resource_state_invalid", message);
  }
  await holdPlaces(restoring, limits);
  for (const table of tablesOf(kind)) await putBack(restoring, table, found);
  if (kind === "list") {
    await restoreSubscriptions(em, vault, tenant, record);
    await touchNewsletters(em, tenant, found);
  }
  const isOwn = sql`id = ${id} and ${ofTenant(tenant)}`;
  if (kind === "campaign" && gone.length > 0)
    await sql`update campaigns set segment_id = case when segment_id = any(${found}::text[]) then segment_id end,
      account_ids = array(select a.id from unnest(account_ids) with ordinality a (id, n) where a.id = any(${found}::text[]) order by n)
      where ${isOwn}`.execute(kysely(em));
  if (kind === "segment") {
    await sql`update segments set deleted_at = null where ${isOwn}`.execute(kysely(em));
    await sql`update campaigns set segment_id = ${id} where ${ofTenant(tenant)} and id = any(${found}::text[])`.execute(
      kysely(em),
    );
  }
  if (kind === "sequence") {
    const stopped = await sql`select from campaigns where ${isOwn} and status = 'STOPPED'`.execute(kysely(em));
    if (stopped.rows.length > 0) gone.push("the people who were in it");
  }
  await sql`delete from bin where ${isOwn}`.execute(kysely(em));
  return { kind, id, name, gone };
}

/** @returns ids of the rows to which a record refers, which stay until the transaction ends, and names of those that are gone */
async function lockReferences(restoring: Restoring): Promise<{ found: string[]; gone: string[] }> {
  const { em, tenant, record } = restoring;
  const found: string[] = [];
  const gone: string[] = [];
  for (const [source, field, target] of REFERENCES[record.kind] ?? []) {
    const value = sql`b.data->${field}::text`;
    const { rows: named } = await sql<{ id: string; name: string | null }>`
      select r.id, x.name from (
        select jsonb_array_elements_text(case jsonb_typeof(${value})
          when 'array' then ${value} when 'string' then jsonb_build_array(${value}) else '[]' end) as id
        from ${binnedRows(tenant, record.id, source)}) r
      left join bin x on x.id = r.id and ${ofTenant(tenant, "x")}`.execute(kysely(em));
    const { rows } = await sql<{ id: string }>`
      select t.id from ${sql.table(target)} t where ${ofTenant(tenant, "t")} and t.id = any(${named.map(({ id }) => id)}::text[])
        and ${mayRefer(restoring)[target] ?? sql`true`} order by t.id for no key update`.execute(kysely(em));
    const ids = new Set(rows.map(({ id }) => id));
    found.push(...ids);
    const lost = named.filter(({ id }) => !ids.has(id));
    gone.push(...lost.map(({ id, name }) => `${target.replace(/^.*_|s$/g, "")} ${name === null ? id : `“${name}”`}`));
  }
  return { found, gone };
}

/** In front of the restored rows, which count as others do. */
async function holdPlaces({ em, tenant, record }: Restoring, limits: Limits): Promise<void> {
  const most: Partial<Record<Table, number>> = {
    ...{ newsletters: limits.MAX_NEWSLETTERS, campaigns: limits.MAX_CAMPAIGNS, lists: limits.MAX_LISTS },
    ...{ templates: MAX_TEMPLATES, forms: MAX_FORMS, segments: MAX_SEGMENTS },
  };
  const { rows } = await sql<{ table: LimitedRecords["table"]; places: number }>`
    select b.source as table, count(*)::int as places from bin_rows b
    where b.record_id = ${record.id} and ${ofTenant(tenant, "b")} group by 1 order by 1`.execute(kysely(em));
  for (const { table, places } of rows) {
    const limit = record.kind === "segment" && table === "campaigns" ? undefined : most[table];
    const limited = { table, name: table, ...(table === "segments" && { condition: IS_NOT_BINNED }) };
    if (limit !== undefined) await holdPlace(em, tenant, limited, limit, places);
  }
}

/** Columns that a migration has added since get their defaults. An incremental run of a client finds a record that has changed. */
async function putBack({ em, tenant, record }: Restoring, table: Table, found: readonly string[]): Promise<void> {
  const rows = binnedRows(tenant, record.id, table);
  const { rows: kept } = await sql<{ name: string }>`
    select jsonb_object_keys(b.data) as name from (select b.data from ${rows} limit 1) b`.execute(kysely(em));
  const names = new Set(kept.map(({ name }) => name));
  const columns = columnsOf(em).flatMap((one) => (one.table === table && names.has(one.column) ? [one.column] : []));
  if (columns.length === 0) return;
  const isTouched = (column: string) => column === "updated_at" && table !== "sequences";
  const values = columns.map((column) => (isTouched(column) ? sql`now()` : sql.ref(`r.${column}`)));
  const isThere = sql`(r.list_id = any(${[...found]}::text[]) or r.newsletter_id = any(${[...found]}::text[]))`;
  await sql`
    insert into ${sql.table(table)} (${sql.join(columns.map((column) => sql.ref(column)))})
    select ${sql.join(values)} from (select b.data from ${rows}) b
    cross join lateral jsonb_populate_record(null::${sql.table(table)}, b.data) r
    where ${table === "newsletter_lists" ? isThere : sql`true`}`.execute(kysely(em));
}
