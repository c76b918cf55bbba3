import { type RawBuilder, sql } from "kysely";
import { columnsOf } from "../../db/columns.ts";
import { BIN_DAYS, type BinnedKind } from "../../db/entities/bin.ts";
import { type Database, type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";

/** Of each kind in an environment: one more, and the oldest is gone. Programs may make and delete drafts without end. */
export const MOST_BINNED = 1_000;

export interface BinnedRecord {
  kind: BinnedKind;
  id: string;
  name: string;
}

export type Table = keyof Database & string;

/**
 * The tables whose rows are moved with a record of a kind, by the column with its id; a table refers to none behind it. Subscriptions
 * have a table of their own in the bin, and the people of a sequence go: it was never started, or has ended. A segment stays in its
 * table, marked: a campaign that was scheduled with it still reads it.
 */
const PARTS: Readonly<Record<BinnedKind, Partial<Record<Table, string>>>> = {
  newsletter: { newsletters: "id", newsletter_lists: "newsletter_id", draft_versions: "draft_id" },
  campaign: { campaigns: "id", draft_versions: "draft_id" },
  sequence: {
    ...{ campaigns: "id", sequences: "campaign_id", sequence_steps: "campaign_id" },
    ...{ sequence_step_versions: "campaign_id", draft_versions: "draft_id" },
  },
  template: { templates: "id" },
  list: { lists: "id", newsletter_lists: "list_id", forms: "list_id", form_days: "list_id" },
  segment: {},
  form: { forms: "id", form_days: "id" },
};
export const tablesOf = (kind: BinnedKind) => Object.keys(PARTS[kind]) as Table[];

/** SQL: the rows `b` of a record in the bin that come from a table. */
export const binnedRows = (tenant: Tenant, recordId: string | RawBuilder<unknown>, source: Table) =>
  sql`bin_rows b where b.record_id = ${recordId} and b.source = ${source} and ${ofTenant(tenant, "b")}`;

/** Deletes a record that the caller's transaction has locked, so that it can be restored. */
export async function moveToBin(em: EntityManager, tenant: Tenant, { kind, id, name }: BinnedRecord): Promise<void> {
  await sql`
    insert into bin (id, team_id, environment, kind, name, deleted_by) values (${id}, ${tenant.teamId}, ${tenant.environment},
      ${kind}, ${name}, nullif(current_setting('mailkeel.member', true), ''))`.execute(kysely(em));
  for (const [table, column] of Object.entries(PARTS[kind]).toReversed() as [Table, string][]) {
    const isOwned = columnsOf(em).some((one) => one.table === table && one.isTenants);
    const isPart =
      table === "form_days"
        ? sql`r.form_id in (select id from forms where ${sql.ref(column)} = ${id} and ${ofTenant(tenant)})`
        : sql`${sql.ref(`r.${column}`)} = ${id}`;
    const own = isOwned ? ofTenant(tenant, "r") : sql`true`;
    const gone = sql`delete from ${sql.table(table)} r where ${isPart} and ${own} returning to_jsonb(r) as data`;
    await addRowsToBin(em, tenant, id, table, gone);
  }
  await sql`
    delete from bin where ${ofTenant(tenant)} and id = any(array(
      select id from bin where ${ofTenant(tenant)} and id = any(array(
        select id from bin where ${ofTenant(tenant)} and kind = ${kind}
        order by deleted_at desc, id desc offset ${MOST_BINNED}::int)) for update skip locked))`.execute(kysely(em));
}

/** Adds rows to a record of the bin. @param changed SQL: a statement that returns them as `data` */
export async function addRowsToBin(
  em: EntityManager,
  tenant: Tenant,
  recordId: string,
  source: Table,
  changed: RawBuilder<unknown>,
): Promise<void> {
  await sql`
    with changed as (${changed})
    insert into bin_rows (id, team_id, environment, record_id, source, data)
    select concat_ws('/', ${recordId}::text, ${source}::text, row_number() over ()), ${tenant.teamId}, ${tenant.environment},
      ${recordId}, ${source}, data from changed`.execute(kysely(em));
}

export interface ListedRecord extends BinnedRecord {
  /** ISO 8601, as `until`. */
  deleted_at: string;
  /** The member's name; null where it was deleted by a program or an operator. */
  deleted_by: string | null;
  until: string;
}

/** The last deleted first. @param after the last id of the page before */
export async function listBin(em: EntityManager, tenant: Tenant, limit: number, after = ""): Promise<ListedRecord[]> {
  const month = sql`make_interval(days => ${BIN_DAYS})`;
  const { rows } = await sql<ListedRecord>`
    select b.id, b.kind, b.name, ${isoInstant(sql`b.deleted_at`)} as deleted_at, m.name as deleted_by,
      ${isoInstant(sql`(b.deleted_at + ${month})`)} as until
    from bin b left join members m on m.id = b.deleted_by and m.team_id = b.team_id
    where ${ofTenant(tenant, "b")} and b.deleted_at > now() - ${month} and (${after} = ''
      or (b.deleted_at, b.id) < (select a.deleted_at, a.id from bin a where a.id = ${after} and ${ofTenant(tenant, "a")}))
    order by b.deleted_at desc, b.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}
