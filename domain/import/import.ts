import type { Readable } from "node:stream";
import { type RawBuilder, sql } from "kysely";
import type { List, SuppressionReason } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { shownAddress } from "../address.ts";
import { lockFieldTypes } from "../audience/contact-fields.ts";
import { CONTACT_WRITTEN } from "../audience/contact-rows.ts";
import { takeSlots } from "../audience/contact-slots.ts";
import { emailStatusOf } from "../audience/email-status.ts";
import type { FieldTypes } from "../audience/field-values.ts";
import { CONFIRMED, initialStatus } from "../audience/initial-status.ts";
import { lockListForInserts } from "../audience/lists.ts";
import { insertOptOuts, restoreOptOuts } from "../audience/opt-outs.ts";
import { suppress } from "../audience/suppressions.ts";
import { hashAddress, isErased } from "../erasure/erased-addresses.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { enrolConfirmed, noteWritten } from "../sequences/enrolments.ts";
import { emitWritten, type WrittenEvents } from "../webhooks/emit.ts";
import { notifyRelayAfterCommit } from "../webhooks/notify.ts";
import { contactRecord, subscriberRecord, subscriptionRecord } from "../webhooks/records.ts";
import { EXCLUSIONS } from "./columns.ts";
import { type ColumnOptions, type FileNotes, type FileOptions, type PersonRow, readPeople } from "./file.ts";

/** Per statement; this many are held in memory, for a file of any size. */
const STAGE_ROWS = 5_000;
const WRITE_ROWS = 10_000;

interface PeopleKind {
  idKind: "contact" | "subscriber";
  table: "contacts" | "subscribers";
  events: WrittenEvents;
  record: (row: string) => RawBuilder<unknown>;
  fields: FieldTypes;
  order: "email" | "line";
  /** Besides the address: the value of a row `p`, and the one after it where there is a row `s` already. */
  columns: Readonly<Record<string, { given: RawBuilder<unknown>; merged: RawBuilder<unknown> }>>;
}

/** A list keeps it by itself. */
const OPTED_OUT: SuppressionReason = "UNSUBSCRIBED";

/** An empty value leaves the known one. */
const NAMES = {
  first_name: { given: sql`p.first_name`, merged: sql`coalesce(excluded.first_name, s.first_name)` },
  last_name: { given: sql`p.last_name`, merged: sql`coalesce(excluded.last_name, s.last_name)` },
};

const SUBSCRIBERS: PeopleKind = {
  idKind: "subscriber",
  table: "subscribers",
  events: { created: "subscriber.created", changed: "subscriber.updated" },
  record: subscriberRecord,
  fields: new Map(),
  // As the ids: indexes grow at their end.
  order: "line",
  columns: NAMES,
};

const contactsOf = (tenant: Tenant, fields: FieldTypes): PeopleKind => ({
  idKind: "contact",
  table: "contacts",
  events: CONTACT_WRITTEN,
  record: contactRecord,
  fields,
  // As all statements that lock several contacts.
  order: "email",
  columns: {
    ...NAMES,
    fields: { given: sql`p.fields`, merged: sql`s.fields || excluded.fields` },
    email_status: { given: emailStatusOf(tenant, sql.ref("p.email")), merged: sql`s.email_status` },
  },
});

export interface ReadingOptions extends ColumnOptions {
  /** In the file's order; lines with erased addresses come up to 5,000 lines late. */
  onRefused: (line: number, reason: string) => void | Promise<void>;
  onProgress?: ((progress: ImportProgress) => void) | undefined;
}

interface PeopleOptions extends ReadingOptions {
  /** Those who come onto a list, or into a segment, enter its sequences. */
  entersSequences?: boolean | undefined;
}

export interface ImportOptions extends PeopleOptions {
  listId?: string | undefined;
  /** CONFIRMED even on a list with double opt-in. */
  confirmed?: boolean | undefined;
}

export interface ImportProgress {
  phase: "reading" | "writing";
  done: number;
  total: number | undefined;
}

interface FileReport {
  rows: number;
  refused: number;
  notes: FileNotes;
}

export interface ImportReport extends FileReport {
  /** Their address is repeated further down; the last one counts. */
  duplicates: number;
  created: number;
  updated: number;
  unchanged: number;
  /** Opted out or bounced, as the file states, and not suppressed before. */
  suppressed: number;
  list?: ListReport;
}

interface ListReport {
  added: number;
  confirmed: number;
  alreadySubscribed: number;
  newlyOptedOut: number;
  /** Before, and left alone. */
  optedOut: number;
}

export interface SuppressionReport extends FileReport {
  suppressed: number;
  /** Suppressed before, repeated in the file, or erased. */
  alreadySuppressed: number;
}

/**
 * Imports subscribers from a CSV file in the caller's transaction: all of it or nothing. An empty name changes none, and no
 * opt-out is lifted; see `docs/operations/admin.md` for columns of consent.
 * @throws {ImportError} @throws {ApiError} `not_found` for the list; `quota_exceeded`
 */
export async function importSubscribers(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  { listId, confirmed = false, entersSequences = false, ...options }: ImportOptions,
): Promise<ImportReport> {
  if (listId === undefined) return importPeople(em, vault, tenant, input, options, SUBSCRIBERS);
  const list = await lockListForInserts(em, listId);
  const report: ListReport = { added: 0, confirmed: 0, alreadySubscribed: 0, newlyOptedOut: 0, optedOut: 0 };
  const subscribe = async (slice: RawBuilder<unknown>, people: number) => {
    // The people are written: none can be deleted before the commit.
    const kept = sql`select from list_opt_outs where ${ofTenant(tenant)} and list_id = ${list.id} limit 1`;
    if ((await kept.execute(kysely(em))).rows.length > 0) {
      const members = await membersOf(tenant, slice).execute(kysely(em));
      await restoreOptOuts(em, vault, tenant, members.rows);
    }
    const written = await writeSubscriptions(em, tenant, list, confirmed, sql`${slice} and p.exclusion is null`);
    const leaving = membersOf(tenant, sql`${slice} and p.exclusion = ${OPTED_OUT}`);
    const newlyOptedOut = await insertOptOuts(
      em,
      tenant,
      sql`select ${list.id} as list_id, m.id as subscriber_id, now() as unsubscribed_at from (${leaving}) m`,
    );
    report.added += written.created;
    report.confirmed += written.changed;
    report.newlyOptedOut += newlyOptedOut;
    const isEveryoneWritten = written.created + written.changed + newlyOptedOut === people;
    const members = isEveryoneWritten ? undefined : await countMembers(em, tenant, list, slice);
    if (!members) return;
    report.alreadySubscribed += members.subscribed - written.created - written.changed;
    report.optedOut += members.optedOut - newlyOptedOut;
  };
  const people = await importPeople(em, vault, tenant, input, options, SUBSCRIBERS, subscribe);
  if (entersSequences) await enrolConfirmed(em, vault, tenant, list.id);
  return { ...people, list: report };
}

/**
 * In the same way. A column sets the custom field of its name; an empty value leaves the known one.
 * @throws {ImportError} @throws {ApiError} `quota_exceeded`
 */
export async function importContacts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  { entersSequences = false, ...options }: PeopleOptions,
): Promise<ImportReport> {
  const fields = await lockFieldTypes(em, tenant);
  const report = await importPeople(em, vault, tenant, input, options, contactsOf(tenant, fields));
  if (!entersSequences) await noteWritten(em, vault, tenant);
  return report;
}

/** @param afterWrite gets the condition of the people `p` that were just written, and their number */
async function importPeople(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  options: ReadingOptions,
  kind: PeopleKind,
  afterWrite?: (slice: RawBuilder<unknown>, people: number) => Promise<void>,
): Promise<ImportReport> {
  const db = kysely(em);
  // Two imports with the same people in another order would deadlock.
  const lock = `import/${tenant.teamId}/${tenant.environment}`;
  await sql`select pg_advisory_xact_lock(hashtextextended(${lock}, 0))`.execute(db);
  await sql`create temporary table import_rows
    (line int, id text, email text, email_spelling text, first_name text, last_name text, fields jsonb,
      exclusion text) on commit drop`.execute(db);

  const file = await stageFile(em, vault, tenant, input, kind, options);
  await sql`create temporary table import_people on commit drop as
    select row_number() over (order by ${sql.ref(kind.order)})::int as n, p.*
    from (select distinct on (email) line, id, email, email_spelling, first_name, last_name, fields,
        -- One row that excludes the person is enough, and the gravest reason counts.
        (${EXCLUSIONS}::text[])[min(array_position(${EXCLUSIONS}::text[], exclusion)) over (partition by email)] as exclusion
      from import_rows order by email, line desc) p`.execute(db);
  await sql`alter table import_people add primary key (n)`.execute(db);
  const counted = await sql<{ people: number }>`select count(*)::int as people from import_people`.execute(db);
  const people = counted.rows[0]?.people ?? 0;
  await sql`create temporary table import_created (email text) on commit drop`.execute(db);

  const report: ImportReport = {
    ...file,
    duplicates: file.rows - file.refused - people,
    created: 0,
    updated: 0,
    unchanged: people,
    suppressed: 0,
  };
  for (let after = 0; after < people; after += WRITE_ROWS) {
    const slice = sql`p.n > ${after} and p.n <= ${after + WRITE_ROWS}`;
    const { created, changed } = await writePeople(em, tenant, slice, kind);
    report.created += created;
    report.updated += changed;
    report.unchanged -= created + changed;
    await afterWrite?.(slice, Math.min(WRITE_ROWS, people - after));
    options.onProgress?.({ phase: "writing", done: Math.min(after + WRITE_ROWS, people), total: people });
  }
  for (let after = 0; after < people; after += STAGE_ROWS) {
    const { rows } = await sql<Excluded>`
      select email, email_spelling as "emailSpelling", exclusion from import_people
      where n > ${after} and n <= ${after + STAGE_ROWS} and exclusion is not null
        and ${afterWrite ? sql`exclusion <> ${OPTED_OUT}` : sql`true`}`.execute(db);
    report.suppressed += await suppressByReason(em, tenant, rows);
  }
  // Their locks are held for a moment only.
  await takeSlots(em, tenant, sql`select email from import_created`);
  await sql`drop table import_people, import_rows, import_created`.execute(db);
  return report;
}

type Excluded = Pick<PersonRow, "email" | "emailSpelling" | "exclusion">;

/** @returns those who were not suppressed before */
async function suppressByReason(em: EntityManager, tenant: Tenant, people: Excluded[], vault?: Vault): Promise<number> {
  let added = 0;
  for (const [reason, rows] of Map.groupBy(people, ({ exclusion }) => exclusion)) {
    if (reason !== null) added += (await suppress(em, tenant, rows.map(shownAddress), reason, { vault })).added.length;
  }
  return added;
}

/**
 * Suppresses each address for the reason that a column states, else by hand. Every 5,000 rows are a transaction: after an
 * interruption, the same file completes the import. @throws {ImportError}
 */
export async function importSuppressions(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  options: ReadingOptions,
): Promise<SuppressionReport> {
  let suppressed = 0;
  const file = await readBatches(input, { ...options, fields: new Map(), isBlockList: true }, async (batch) => {
    suppressed += await transaction(em, (tx) => suppressByReason(tx, tenant, batch, vault));
    return 0;
  });
  return { ...file, suppressed, alreadySuppressed: file.rows - file.refused - suppressed };
}

/** @param act gets up to 5,000 people at once; returns how many it refused */
async function readBatches(
  input: Readable,
  options: ReadingOptions & FileOptions,
  act: (batch: PersonRow[]) => Promise<number>,
): Promise<FileReport> {
  const notes: FileNotes = { ignoredColumns: [], statusColumns: [], windows1252Lines: 0 };
  const report: FileReport = { rows: 0, refused: 0, notes };
  let batch: PersonRow[] = [];
  const flush = async () => {
    report.refused += await act(batch);
    batch = [];
    options.onProgress?.({ phase: "reading", done: report.rows, total: undefined });
  };
  for await (const row of readPeople(input, options, notes)) {
    report.rows++;
    if ("problem" in row) {
      report.refused++;
      await options.onRefused(row.line, row.problem);
    } else batch.push(row);
    if (batch.length === STAGE_ROWS) await flush();
  }
  if (batch.length > 0) await flush();
  return report;
}

const stageFile = (
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  { idKind, fields }: PeopleKind,
  options: ReadingOptions,
): Promise<FileReport> =>
  readBatches(input, { ...options, fields }, async (batch) => {
    const erased = await findErased(em, vault, tenant, batch);
    for (const line of erased) {
      await options.onRefused(line, "the person with this address asked for their data to be erased");
    }
    await stageRows(em, idKind, erased.size > 0 ? batch.filter(({ line }) => !erased.has(line)) : batch);
    return erased.size;
  });

async function stageRows(em: EntityManager, idKind: PeopleKind["idKind"], rows: PersonRow[]): Promise<void> {
  await sql`insert into import_rows select * from unnest(
    ${rows.map((row) => row.line)}::int[],
    ${rows.map(() => newId(idKind))}::text[],
    ${rows.map((row) => row.email)}::text[],
    ${rows.map((row) => row.emailSpelling)}::text[],
    ${rows.map((row) => row.firstName)}::text[],
    ${rows.map((row) => row.lastName)}::text[],
    ${rows.map((row) => JSON.stringify(row.fields))}::jsonb[],
    ${rows.map((row) => row.exclusion)}::text[])`.execute(kysely(em));
}

async function findErased(em: EntityManager, vault: Vault, tenant: Tenant, rows: PersonRow[]): Promise<Set<number>> {
  const { rows: erased } = await sql<{ line: number }>`
    select g.line from unnest(
      ${rows.map((row) => row.line)}::int[],
      ${rows.map((row) => hashAddress(vault, tenant, row.email))}::text[]) as g (line, hash)
    where ${isErased(tenant, sql.ref("g.hash"))} order by g.line`.execute(kysely(em));
  return new Set(erased.map(({ line }) => line));
}

interface Written {
  created: number;
  changed: number;
}

async function write(em: EntityManager, statement: RawBuilder<Written & { emitted: boolean }>): Promise<Written> {
  const { rows } = await statement.execute(kysely(em));
  const [{ created, changed, emitted } = { created: 0, changed: 0, emitted: false }] = rows;
  if (emitted) notifyRelayAfterCommit(em);
  return { created, changed };
}

const emitAndCount = (
  tenant: Tenant,
  events: WrittenEvents,
  record: (row: string) => RawBuilder<unknown>,
) => sql`${emitWritten(tenant, events, record)}
    select (count(*) filter (where created))::int as created, (count(*) filter (where not created))::int as changed,
      exists (select from emitted) as emitted
    from written`;

function writePeople(
  em: EntityManager,
  tenant: Tenant,
  slice: RawBuilder<unknown>,
  { table, events, record, columns }: PeopleKind,
): Promise<Written> {
  const names = Object.keys(columns);
  const merged = Object.values(columns).map((column) => column.merged);
  return write(
    em,
    sql`
    with written as (
      insert into ${sql.table(table)} as s
        (id, team_id, environment, email, email_spelling, ${sql.join(names.map((name) => sql.ref(name)))})
      select p.id, ${tenant.teamId}, ${tenant.environment}, p.email, p.email_spelling,
        ${sql.join(Object.values(columns).map(({ given }) => given))}
      from import_people p where ${slice} order by p.n
      on conflict (team_id, environment, email) do update
        set ${sql.join(Object.entries(columns).map(([name, column]) => sql`${sql.ref(name)} = ${column.merged}`))}
        where (${sql.join(names.map((name) => sql.ref(`s.${name}`)))}) is distinct from (${sql.join(merged)})
      -- A row that this statement inserted was never locked or changed.
      returning xmax = 0 as created, s.*
    ), noted as (insert into import_created select email from written where created),
    ${emitAndCount(tenant, events, record)}`,
  );
}

/**
 * A scalar subquery is an index look-up under any estimate. A join became a nested loop over all rows, because there are no
 * statistics of rows that this transaction has just written.
 */
const membersOf = (tenant: Tenant, slice: RawBuilder<unknown>) => sql<{ id: string; email: string }>`
  select (select s.id from subscribers s
    where ${ofTenant(tenant, "s")} and s.email = p.email) as id, p.email
  from import_people p where ${slice}`;

function writeSubscriptions(
  em: EntityManager,
  tenant: Tenant,
  list: List,
  confirmed: boolean,
  slice: RawBuilder<unknown>,
): Promise<Written> {
  const start = confirmed ? CONFIRMED : initialStatus(list.optin, tenant.environment);
  const onConflict = confirmed
    ? sql`do update
        set status = 'CONFIRMED', confirmed_at = now(), confirmation_due_at = null, confirmation_withheld = null
        where x.status = 'PENDING'`
    : sql`do nothing`;
  return write(
    em,
    sql`
    with written as (
      insert into subscriptions as x
        (list_id, subscriber_id, team_id, environment, status, confirmed_at, confirmation_due_at)
      select ${list.id}, m.id, ${tenant.teamId}, ${tenant.environment}, ${start.status},
        ${start.confirmed_at}::timestamptz, ${start.confirmation_due_at}::timestamptz
      from (${membersOf(tenant, slice)}) m order by m.id
      on conflict (list_id, subscriber_id) ${onConflict}
      returning xmax = 0 as created, list_id, subscriber_id, status, confirmed_at, confirmation_sent_at,
        confirmation_withheld, unsubscribed_at, created_at, updated_at
    ), ${emitAndCount(tenant, { created: "subscription.created", changed: "subscription.confirmed" }, subscriptionRecord)}`,
  );
}

async function countMembers(
  em: EntityManager,
  tenant: Tenant,
  list: List,
  slice: RawBuilder<unknown>,
): Promise<{ subscribed: number; optedOut: number } | undefined> {
  const { rows } = await sql<{ subscribed: number; optedOut: number }>`
    select (count(*) filter (where m.status <> 'UNSUBSCRIBED'))::int as subscribed,
      (count(*) filter (where m.status = 'UNSUBSCRIBED'))::int as "optedOut"
    from (select (select o.status from subscriptions o
        where ${ofTenant(tenant, "o")} and o.list_id = ${list.id} and o.subscriber_id = m.id) as status
      from (${membersOf(tenant, slice)}) m) m`.execute(kysely(em));
  return rows[0];
}
