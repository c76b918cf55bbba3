import type { Readable } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { type RawBuilder, sql } from "kysely";
import type { List, SuppressionReason } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { isLockTimeout } from "../../db/unreachable.ts";
import { shownAddress } from "../address.ts";
import { lockFieldTypes, readFieldTypes } from "../audience/contact-fields.ts";
import { CONTACT_WRITTEN } from "../audience/contact-rows.ts";
import { readSlotUse, slotsExceeded, takeSlots } from "../audience/contact-slots.ts";
import { emailStatusOf } from "../audience/email-status.ts";
import type { FieldTypes } from "../audience/field-values.ts";
import { CONFIRMED, initialStatus } from "../audience/initial-status.ts";
import { lockListForInserts, readList } from "../audience/lists.ts";
import { insertOptOuts, restoreOptOuts } from "../audience/opt-outs.ts";
import { suppress } from "../audience/suppressions.ts";
import { setConsents } from "../audience/tracking-consents.ts";
import { hashAddress, isErased } from "../erasure/erased-addresses.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { enrolConfirmed, noteWritten } from "../sequences/enrolments.ts";
import { emitWritten, notifyRelayAfterCommit, type WrittenEvents } from "../webhooks/emit.ts";
import { contactRecord, subscriberRecord, subscriptionRecord } from "../webhooks/records.ts";
import { EXCLUSIONS } from "./columns.ts";
import {
  type ColumnOptions,
  type FileNotes,
  type FileOptions,
  ImportError,
  type PersonRow,
  type RefusedRow,
  readPeople,
} from "./file.ts";
import type { Made } from "./undo.ts";

/*
 * An import reads the whole file into a temporary table before it changes anything, and then writes people in steps. Each step
 * is a transaction: other work waits for a moment, and an import that was cut off continues behind its last step.
 */

/** People of a step; this many are held in memory, for a file of any size. */
export const STEP_ROWS = 2_000;
/** How long a step waits for a lock while it holds others; then it begins anew. */
const LOCK_WAIT_MS = 500;
/** How long other work may keep a step from its rows. Less than Postgres lets the transaction with the file be idle. */
const LOCKED_MS = 20_000;

/** Of a step. */
interface Person extends Omit<PersonRow, "fields"> {
  /** JSON. */
  fields: string;
}

interface PeopleKind {
  idKind: "contact" | "subscriber";
  table: "contacts" | "subscribers";
  events: WrittenEvents;
  record: (row: string) => RawBuilder<unknown>;
  /** Besides the address: the value of a row `p`, and the one after it where there is a row `s` already. */
  columns: Readonly<Record<string, { given: RawBuilder<unknown>; merged: RawBuilder<unknown> }>>;
}

const NO_VALUES = "{}";

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
  columns: NAMES,
};

const contactsOf = (tenant: Tenant): PeopleKind => ({
  idKind: "contact",
  table: "contacts",
  events: CONTACT_WRITTEN,
  record: contactRecord,
  columns: {
    ...NAMES,
    fields: { given: sql`p.fields`, merged: sql`s.fields || excluded.fields` },
    email_status: { given: emailStatusOf(tenant, sql.ref("p.email")), merged: sql`s.email_status` },
  },
});

export interface ReadingOptions extends ColumnOptions {
  /** In the file's order; lines with erased addresses come up to 2,000 lines late, or after all others. */
  onRefused: (line: number, reason: string, row?: Pick<RefusedRow, "address" | "cells">) => void | Promise<void>;
  onProgress?: ((progress: ImportProgress) => void) | undefined;
  /** The text that the people of the file were shown when they answered whether they may be tracked. */
  trackingWords?: string | undefined;
  /** Counts what would change. It reads alone: nothing waits for it. */
  isDryRun?: boolean | undefined;
  /** Where an import that was cut off continues. */
  place?: ImportPlace | undefined;
  /** Called with the places behind and before each step, and the rows that it has made, in its transaction. */
  onStep?: ((em: EntityManager, place: ImportPlace, before: ImportPlace, made: Made) => Promise<void>) | undefined;
}

interface PeopleOptions extends ReadingOptions {
  /** Those who come onto a list, or into a segment, enter its sequences. */
  entersSequences?: boolean | undefined;
}

export interface ImportOptions extends PeopleOptions {
  listId?: string | undefined;
  /** CONFIRMED even on a list with double opt-in. */
  confirmed?: boolean | undefined;
  /** People who come onto a list with double opt-in are asked by mail. Neither this nor `confirmed`: a file that would have some asked is refused. */
  asks?: boolean | undefined;
}

export interface ImportProgress {
  phase: "reading" | "writing";
  done: number;
  total: number | undefined;
}

/** How far an import has come. */
export interface ImportPlace {
  /** The last of the file that is written. */
  line: number;
  people: number;
  counts: Counts;
}

interface Counts extends ListReport, FieldsReport {
  created: number;
  updated: number;
  suppressed: number;
}

const NO_ONE: ListReport = { added: 0, asked: 0, confirmed: 0, alreadySubscribed: 0, newlyOptedOut: 0, optedOut: 0 };
const NO_FIELDS: FieldsReport = { contactsCreated: 0, contactsUpdated: 0, fieldsNotStored: 0 };
const START: ImportPlace = {
  line: 0,
  people: 0,
  counts: { created: 0, updated: 0, suppressed: 0, ...NO_FIELDS, ...NO_ONE },
};

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
  /** Of an import of subscribers that writes custom fields. */
  fields?: FieldsReport;
}

/** Contacts have the custom fields of subscribers with their address. */
interface FieldsReport {
  contactsCreated: number;
  contactsUpdated: number;
  /** Of people who come onto no list, have not confirmed, or had opted out of it: a campaign would mail a contact. */
  fieldsNotStored: number;
}

interface ListReport {
  added: number;
  /** Of those who are added: a mail asks them for their confirmation. */
  asked: number;
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

/** What is done with the people of a file. */
interface FileKind extends FileOptions {
  /** Before the first step. @throws {ImportError} for a file of which nothing is written */
  refuse?: (em: EntityManager, steps: AsyncIterable<readonly Person[]>) => Promise<void>;
  /** Counts what `write` would do, in one transaction with the file. */
  compare: (em: EntityManager, people: readonly Person[]) => Promise<Partial<Counts>>;
  /** In a transaction of its own. */
  write: (em: EntityManager, people: readonly Person[]) => Promise<Partial<Counts & Made>>;
}

/**
 * Imports subscribers from a CSV file in steps of 2,000 people. A file that is refused changes nothing. One that was cut off is
 * completed by importing it again: those who are written stay as they are. An empty name changes none, and no opt-out is
 * lifted; see `docs/operations/admin.md` for columns of consent. No person is asked for a confirmation unless the caller says so.
 * Custom fields are written to the contact of the address, which is made for one that has none.
 * @param em in no transaction
 * @throws {ImportError} @throws {ApiError} `not_found` for the list; `quota_exceeded`
 */
export async function importSubscribers(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  { listId, confirmed = false, asks = false, entersSequences = false, ...options }: ImportOptions,
): Promise<ImportReport> {
  const found = listId === undefined ? undefined : await readList(em, listId);
  const fields = await readFieldTypes(em, tenant);
  const countOf = (tx: EntityManager, list: List, people: readonly Person[]) =>
    countMembers(tx, vault, tenant, list, people, confirmed);
  const refuseAsking = (asked: number) => {
    if (asked === 0 || asks) return;
    const choose = options.uses ? "Check the file again, and choose" : "Say by --ask or --confirmed";
    throw new ImportError(`${wouldAsk(asked)} ${choose} whether they are asked.`);
  };
  const isSuppressed = ({ exclusion }: Person) => listId === undefined || exclusion !== OPTED_OUT;
  const { report, counts } = await importPeople(em, vault, tenant, input, options, {
    fields,
    refuse: async (tx, steps) => {
      if (!found || asks || !asksByMail(tenant, found, confirmed)) return;
      let asked = 0;
      for await (const people of steps) asked += (await countOf(tx, found, people)).asked;
      refuseAsking(asked);
    },
    compare: async (tx, people) => {
      const members = found && (await countOf(tx, found, people));
      const { having, fieldsNotStored } = await havingFields(people, members?.mailed);
      const contacts = await countPeople(tx, tenant, having, contactsOf(tenant));
      return {
        ...members,
        ...(await countPeople(tx, tenant, people, SUBSCRIBERS)),
        suppressed: await countUnsuppressed(tx, tenant, people.filter(isSuppressed)),
        ...{ contactsCreated: contacts.created, contactsUpdated: contacts.updated, fieldsNotStored },
      };
    },
    write: async (tx, people) => {
      const list = listId === undefined ? undefined : await lockListForInserts(tx, listId);
      const { created, ids, made } = await writePeople(tx, tenant, people, SUBSCRIBERS);
      // They are written: none can be deleted before the commit, and leave an opt-out that this does not see.
      const members = list && (await countOf(tx, list, people));
      // Its setting may have changed since the first step.
      if (members) refuseAsking(members.asked);
      if (members?.kept) {
        const { rows } = await membersOf(tenant, people).execute(kysely(tx));
        await restoreOptOuts(tx, vault, tenant, rows);
      }
      const joined = list ? await subscribe(tx, tenant, list, people, confirmed) : { members: [], ids: [] };
      if (list && entersSequences) await enrolConfirmed(tx, vault, tenant, list.id, joined.ids);
      const suppressed = await suppressByReason(tx, tenant, people.filter(isSuppressed));
      const stillThere = (given: Person[]) => withFieldsLeft(tx, tenant, given, fields);
      const { having, fieldsNotStored } = await havingFields(people, members?.mailed, stillThere);
      const contacts = having.length === 0 ? NONE : await writeContacts(tx, vault, tenant, having, entersSequences);
      await takeSlots(tx, tenant, created, contacts.created);
      return {
        ...members,
        ...{ created: created.length, updated: ids.length - created.length, suppressed },
        ...{ contactsCreated: contacts.created.length, contactsUpdated: contacts.ids.length - contacts.created.length },
        ...{ fieldsNotStored, people: made, members: joined.members, contacts: contacts.made },
      };
    },
  });
  const { created, updated, suppressed, contactsCreated, contactsUpdated, fieldsNotStored, ...list } = counts;
  const written = { contactsCreated, contactsUpdated, fieldsNotStored };
  return {
    ...report,
    ...(listId !== undefined && { list }),
    ...(Object.values(written).some((count) => count > 0) && { fields: written }),
  };
}

/**
 * People whose custom fields an import of subscribers writes: no contact is made of a person whom the file excludes, or no list
 * mails.
 * @param mailed addresses; none without a list @param left what is left of their fields
 */
async function havingFields(
  people: readonly Person[],
  mailed: readonly string[] = [],
  left = async (given: Person[]) => given,
) {
  const among = new Set(mailed);
  const given = people.filter(({ fields, exclusion }) => fields !== NO_VALUES && exclusion === null);
  const having = (await left(given.filter(({ email }) => among.has(email)))).filter(
    ({ fields }) => fields !== NO_VALUES,
  );
  return { having, fieldsNotStored: given.length - having.length };
}

/** Leaves out fields of the file's header that were deleted since; the others stay until the transaction ends. */
async function withFieldsLeft(
  em: EntityManager,
  tenant: Tenant,
  people: readonly Person[],
  fields: FieldTypes,
): Promise<Person[]> {
  const types = people.length === 0 ? fields : await lockFieldTypes(em, tenant);
  const isLeft = ([name]: [string, unknown]) => types.get(name) === fields.get(name);
  const leftOf = (json: string) => JSON.stringify(Object.fromEntries(Object.entries(JSON.parse(json)).filter(isLeft)));
  const areAll = [...fields].every(isLeft);
  return people.map((person) => (areAll ? person : { ...person, fields: leftOf(person.fields) }));
}

async function writeContacts(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  people: readonly Person[],
  entersSequences: boolean,
): Promise<Written> {
  const written = await writePeople(em, tenant, people, contactsOf(tenant));
  if (!entersSequences) await noteWritten(em, vault, tenant, written.ids);
  return written;
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
  const fields = await readFieldTypes(em, tenant);
  const { report } = await importPeople(em, vault, tenant, input, options, {
    fields,
    compare: async (tx, people) => ({
      ...(await countPeople(tx, tenant, people, contactsOf(tenant))),
      suppressed: await countUnsuppressed(tx, tenant, people),
    }),
    write: async (tx, people) => {
      const left = await withFieldsLeft(tx, tenant, people, fields);
      const { created, ids, made } = await writeContacts(tx, vault, tenant, left, entersSequences);
      const suppressed = await suppressByReason(tx, tenant, people);
      await takeSlots(tx, tenant, created);
      return { created: created.length, updated: ids.length - created.length, suppressed, people: made };
    },
  });
  return report;
}

/**
 * Suppresses each address for the reason that a column states, else by hand, in the same way.
 * @throws {ImportError}
 */
export async function importSuppressions(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  options: ReadingOptions,
): Promise<SuppressionReport> {
  const { counts, ...file } = await importFile(em, vault, tenant, input, options, {
    fields: new Map(),
    isBlockList: true,
    compare: async (tx, people) => ({ suppressed: await countUnsuppressed(tx, tenant, people) }),
    write: async (tx, people) => ({ suppressed: await suppressByReason(tx, tenant, people) }),
  });
  const { suppressed } = counts;
  const { rows, refused, notes } = file;
  return { rows, refused, notes, suppressed, alreadySuppressed: rows - refused - suppressed };
}

async function importPeople(
  ...given: Parameters<typeof importFile>
): Promise<{ report: ImportReport; counts: Counts }> {
  const { people, counts, ...file } = await importFile(...given);
  const { created, updated, suppressed } = counts;
  const duplicates = file.rows - file.refused - people;
  // After a kill, the file is read again: some whom the steps before have counted may have been erased since.
  const unchanged = Math.max(0, people - created - updated);
  const report = { ...file, duplicates, created, updated, unchanged, suppressed };
  return { report, counts };
}

/** @returns `people`: the distinct addresses of the file that were not refused */
async function importFile(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  options: ReadingOptions,
  kind: FileKind,
): Promise<FileReport & { people: number; counts: Counts }> {
  const { isDryRun = false, onRefused, onProgress, onStep } = options;
  const refuse = async (erased: ReadonlySet<number>) => {
    for (const line of erased) await onRefused(line, "the person with this address asked for their data to be erased");
  };
  const act = async (tx: EntityManager, step: readonly Person[], before: ImportPlace) => {
    const erased = await findErased(tx, vault, tenant, step);
    const people = step.filter(({ line }) => !erased.has(line));
    const counted: Partial<Counts & Made> = await (isDryRun ? kind.compare(tx, people) : kind.write(tx, people));
    const said = people.flatMap(({ email, tracking }) =>
      tracking === null ? [] : [{ email, status: tracking, words: options.trackingWords }],
    );
    if (!isDryRun) await setConsents(tx, vault, tenant, said, "IMPORT");
    const line = step.at(-1)?.line ?? before.line;
    const place = { line, people: before.people + step.length, counts: sum(before.counts, counted) };
    const made = { people: counted.people ?? [], members: counted.members ?? [], contacts: counted.contacts ?? [] };
    if (!isDryRun) await onStep?.(tx, place, before, made);
    return { place, erased };
  };
  const work = async (staging: EntityManager) => {
    const file = await stageFile(staging, vault, tenant, input, kind, options, refuse);
    let place = options.place ?? START;
    let people = await dropRepeated(staging);
    if (!kind.isBlockList) await refuseBeyondPlan(staging, tenant, place.line);
    if (!isDryRun) await kind.refuse?.(staging, readSteps(staging, place.line));
    for await (const step of readSteps(staging, place.line)) {
      const before = place;
      const acted = await (isDryRun ? act(staging, step, before) : inStep(em, (tx) => act(tx, step, before)));
      place = acted.place;
      // Erased since the file was read.
      if (!kind.isBlockList) {
        await refuse(acted.erased);
        file.refused += acted.erased.size;
        people -= acted.erased.size;
      }
      onProgress?.({ phase: "writing", done: place.people, total: people });
    }
    return { ...file, people, counts: place.counts };
  };
  // It locks no row of others. A stream cannot be read again after a conflict.
  return transaction(em, work, { attempts: 1 });
}

const sum = (counts: Counts, more: Partial<Counts>): Counts => {
  const total = { ...counts };
  for (const name of Object.keys(total) as (keyof Counts)[]) total[name] += more[name] ?? 0;
  return total;
};

/** A transaction that lets go of all its locks, and begins anew, when it has to wait for another one. */
export async function inStep<T>(em: EntityManager, work: (em: EntityManager) => Promise<T>): Promise<T> {
  const limited = async (tx: EntityManager) => {
    await sql`select set_config('lock_timeout', ${`${LOCK_WAIT_MS}ms`}, true)`.execute(kysely(tx));
    return work(tx);
  };
  for (const giveUpAt = performance.now() + LOCKED_MS; ; ) {
    try {
      return await transaction(em, limited);
    } catch (error) {
      if (!isLockTimeout(error) || performance.now() > giveUpAt) throw error;
      await delay(LOCK_WAIT_MS);
    }
  }
}

/** Fills `import_rows`. */
async function stageFile(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  input: Readable,
  kind: FileKind,
  options: ReadingOptions,
  refuse: (erased: ReadonlySet<number>) => Promise<void>,
): Promise<FileReport> {
  await sql`create temporary table import_rows (line int, email text, email_spelling text, first_name text,
    last_name text, fields text, exclusion text, tracking text) on commit drop`.execute(kysely(em));
  const notes: FileNotes = { ignoredColumns: [], statusColumns: [], windows1252Lines: 0 };
  const report: FileReport = { rows: 0, refused: 0, notes };
  let batch: PersonRow[] = [];
  const flush = async () => {
    const erased = kind.isBlockList ? new Set<number>() : await findErased(em, vault, tenant, batch);
    await refuse(erased);
    report.refused += erased.size;
    const rows = batch.filter(({ line }) => !erased.has(line));
    await stageRows(em, rows);
    batch = [];
    options.onProgress?.({ phase: "reading", done: report.rows, total: undefined });
  };
  for await (const row of readPeople(input, { ...options, ...kind }, notes)) {
    report.rows++;
    if ("problem" in row) {
      report.refused++;
      await options.onRefused(row.line, row.problem, row);
    } else batch.push(row);
    if (batch.length === STEP_ROWS) await flush();
  }
  await flush();
  return report;
}

async function stageRows(em: EntityManager, rows: readonly PersonRow[]): Promise<void> {
  await sql`insert into import_rows select * from unnest(
    ${rows.map((row) => row.line)}::int[],
    ${rows.map((row) => row.email)}::text[],
    ${rows.map((row) => row.emailSpelling)}::text[],
    ${rows.map((row) => row.firstName)}::text[],
    ${rows.map((row) => row.lastName)}::text[],
    ${rows.map((row) => JSON.stringify(row.fields))}::text[],
    ${rows.map((row) => row.exclusion)}::text[],
    ${rows.map((row) => row.tracking)}::text[])`.execute(kysely(em));
}

/** Makes `import_people` of the rows. @returns their number */
async function dropRepeated(em: EntityManager): Promise<number> {
  const db = kysely(em);
  await sql`create temporary table import_people on commit drop as
    select distinct on (email) line, email, email_spelling, first_name, last_name, fields,
      -- One row that excludes the person is enough, and the gravest reason counts.
      coalesce((${EXCLUSIONS}::text[])[min(array_position(${EXCLUSIONS}::text[], exclusion)) over (partition by email)],
        exclusion) as exclusion,
      -- One denial is enough, and an empty cell leaves the grant of another row: DENIED comes before GRANTED.
      min(tracking) over (partition by email) as tracking
    from import_rows order by email, line desc`.execute(db);
  await sql`alter table import_people add primary key (line)`.execute(db);
  const { rows } = await sql<{ people: number }>`select count(*)::int as people from import_people`.execute(db);
  return rows[0]?.people ?? 0;
}

/** Those behind a line, in the file's order. */
async function* readSteps(em: EntityManager, after: number): AsyncGenerator<Person[]> {
  for (let line: number | undefined = after; line !== undefined; ) {
    const { rows } = await sql<Person>`
      select line, email, email_spelling as "emailSpelling", first_name as "firstName", last_name as "lastName", fields,
        exclusion, tracking
      from import_people where line > ${line} order by line limit ${STEP_ROWS}`.execute(kysely(em));
    line = rows.at(-1)?.line;
    if (rows.length > 0) yield rows;
  }
}

/** Before anyone is written. @throws {ApiError} `quota_exceeded` */
async function refuseBeyondPlan(em: EntityManager, tenant: Tenant, after: number): Promise<void> {
  const { remaining } = await readSlotUse(em, tenant);
  if (remaining === null) return;
  const { rows } = await sql<{ slots: number }>`
    select count(*)::int as slots from import_people p where p.line > ${after} and (
      select a.holders from audience_addresses a where ${ofTenant(tenant, "a")} and a.email = p.email) is null`.execute(
    kysely(em),
  );
  const slots = rows[0]?.slots ?? 0;
  if (slots > remaining) throw slotsExceeded(slots, remaining);
}

/** @returns those who were not suppressed before */
async function suppressByReason(em: EntityManager, tenant: Tenant, people: readonly Person[]): Promise<number> {
  let added = 0;
  for (const [reason, rows] of Map.groupBy(people, ({ exclusion }) => exclusion)) {
    if (reason !== null) added += (await suppress(em, tenant, rows.map(shownAddress), reason)).added.length;
  }
  return added;
}

/** @returns the lines of those whose addresses were erased */
export async function findErased(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  rows: readonly Pick<Person, "line" | "email">[],
): Promise<Set<number>> {
  const { rows: erased } = await sql<{ line: number }>`
    select g.line from unnest(
      ${rows.map((row) => row.line)}::int[],
      ${rows.map((row) => hashAddress(vault, tenant, row.email))}::text[]) as g (line, hash)
    where ${isErased(tenant, sql.ref("g.hash"))} order by g.line`.execute(kysely(em));
  return new Set(erased.map(({ line }) => line));
}

/** A part of a statement: the people as rows. */
const peopleRows = (people: readonly Person[], idKind: PeopleKind["idKind"]) => sql`unnest(
    ${people.map(() => newId(idKind))}::text[],
    ${people.map((person) => person.email)}::text[],
    ${people.map((person) => person.emailSpelling)}::text[],
    ${people.map((person) => person.firstName)}::text[],
    ${people.map((person) => person.lastName)}::text[],
    ${people.map((person) => person.fields)}::jsonb[])`;
const PEOPLE_COLUMNS = sql`(id, email, email_spelling, first_name, last_name, fields)`;

/** SQL: whether a row `s` differs from what it would become. */
const isChanged = ({ columns }: PeopleKind) => sql`
  (${sql.join(Object.keys(columns).map((name) => sql.ref(`s.${name}`)))})
    is distinct from (${sql.join(Object.values(columns).map(({ merged }) => merged))})`;

interface Written {
  /** Addresses of new rows. */
  created: string[];
  /** Their ids. */
  made: string[];
  /** Of new and changed ones. */
  ids: string[];
}

const NONE: Written = { created: [], made: [], ids: [] };

async function writePeople(
  em: EntityManager,
  tenant: Tenant,
  people: readonly Person[],
  kind: PeopleKind,
): Promise<Written> {
  const { table, idKind, events, record, columns } = kind;
  const { rows } = await sql<Written & { emitted: boolean }>`
    with written as (
      insert into ${sql.table(table)} as s
        (id, team_id, environment, email, email_spelling, ${sql.join(Object.keys(columns).map((name) => sql.ref(name)))})
      select p.id, ${tenant.teamId}, ${tenant.environment}, p.email, p.email_spelling,
        ${sql.join(Object.values(columns).map(({ given }) => given))}
      from ${peopleRows(people, idKind)} as p ${PEOPLE_COLUMNS}
      -- As all statements that lock several people.
      order by p.email
      on conflict (team_id, environment, email) do update
        set ${sql.join(Object.entries(columns).map(([name, column]) => sql`${sql.ref(name)} = ${column.merged}`))}
        where ${isChanged(kind)}
      -- A row that this statement inserted was never locked or changed.
      returning xmax = 0 as created, s.*
    ), ${emitWritten(tenant, events, record)}
    select array(select email from written where created) as created,
      array(select id from written where created) as made, array(select id from written) as ids,
      exists (select from emitted) as emitted`.execute(kysely(em));
  const [{ emitted, ...written } = { ...NONE, emitted: false }] = rows;
  if (emitted) notifyRelayAfterCommit(em);
  return written;
}

/** What `writePeople` would do. Each look-up has a limit, so that the planner reads no other rows of the tenant. */
async function countPeople(
  em: EntityManager,
  tenant: Tenant,
  people: readonly Person[],
  kind: PeopleKind,
): Promise<Pick<Counts, "created" | "updated">> {
  const { rows } = await sql<Pick<Counts, "created" | "updated">>`
    select (count(*) filter (where s.id is null))::int as created,
      (count(*) filter (where s.id is not null and ${isChanged(kind)}))::int as updated
    from ${peopleRows(people, kind.idKind)} as excluded ${PEOPLE_COLUMNS}
    left join lateral (
      select * from ${sql.table(kind.table)} s where ${ofTenant(tenant, "s")} and s.email = excluded.email limit 1
    ) s on true`.execute(kysely(em));
  return rows[0] ?? { created: 0, updated: 0 };
}

/** What `suppressByReason` would do. */
async function countUnsuppressed(em: EntityManager, tenant: Tenant, people: readonly Person[]): Promise<number> {
  const excluded = people.filter(({ exclusion }) => exclusion !== null);
  const { rows } = await sql<{ people: number }>`
    select count(*)::int as people from unnest(${excluded.map(({ email }) => email)}::text[]) as p (email)
    where (select x.reason from suppressions x where ${ofTenant(tenant, "x")} and x.email = p.email) is null`.execute(
    kysely(em),
  );
  return rows[0]?.people ?? 0;
}

/**
 * A scalar subquery is an index look-up under any estimate. A join became a nested loop over all rows, because there are no
 * statistics of rows that this transaction has just written.
 */
const subscriberId = (tenant: Tenant) =>
  sql`(select s.id from subscribers s where ${ofTenant(tenant, "s")} and s.email = p.email)`;

const membersOf = (tenant: Tenant, people: readonly Person[]) => sql<{ id: string; email: string }>`
  select ${subscriberId(tenant)} as id, p.email from unnest(${people.map(({ email }) => email)}::text[]) as p (email)`;

/** Of a subscription that an import makes. */
const startOf = (tenant: Tenant, list: List, confirmed: boolean) =>
  confirmed ? CONFIRMED : initialStatus(list.optin, tenant.environment);

const asksByMail = (tenant: Tenant, list: List, confirmed: boolean): boolean =>
  startOf(tenant, list, confirmed).confirmation_due_at !== null;

export const wouldAsk = (asked: number): string =>
  `${asked === 1 ? "1 person" : `${asked.toLocaleString("en")} people`} would be asked by email to confirm, because the list has double opt-in.`;

interface Members extends ListReport {
  kept: number;
  mailed: string[];
}

/**
 * Counts the changes that `subscribe` is about to make. @returns also how many opt-outs of the list are kept for these addresses, and `mailed`: the
 * addresses that are then confirmed
 */
async function countMembers(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  list: List,
  people: readonly Person[],
  confirmed: boolean,
): Promise<Members> {
  const listId = list.id;
  // No mail asks a person whose address is suppressed.
  const isAsked = asksByMail(tenant, list, confirmed)
    ? sql`status is null and (select x.reason from suppressions x where ${ofTenant(tenant, "x")} and x.email = m.email) is null`
    : sql`false`;
  const joins = sql`exclusion is null and (status is null or status = 'PENDING' and ${confirmed})`;
  const leaves = sql`coalesce(exclusion = ${OPTED_OUT}, false)`;
  const isConfirmed = startOf(tenant, list, confirmed).status === "CONFIRMED";
  const { rows } = await sql<Members>`
    select (count(*) filter (where ${joins} and status is null))::int as added,
      (count(*) filter (where ${joins} and ${isAsked}))::int as asked,
      (count(*) filter (where ${joins} and status = 'PENDING'))::int as confirmed,
      (count(*) filter (where status <> 'UNSUBSCRIBED' and not ${leaves} and not (${joins})))::int as "alreadySubscribed",
      (count(*) filter (where ${leaves} and status is distinct from 'UNSUBSCRIBED'))::int as "newlyOptedOut",
      (count(*) filter (where status = 'UNSUBSCRIBED'))::int as "optedOut", count(kept)::int as kept,
      coalesce(array_agg(email) filter (where status = 'CONFIRMED' or ${joins} and ${isConfirmed}), '{}') as mailed
    from (
      select p.email, p.exclusion, p.kept, case when p.kept is not null then 'UNSUBSCRIBED' else (
        select o.status from subscriptions o
        where ${ofTenant(tenant, "o")} and o.list_id = ${listId} and o.subscriber_id = ${subscriberId(tenant)}) end as status
      from (select g.*, (select k.list_id from list_opt_outs k
          where ${ofTenant(tenant, "k")} and k.list_id = ${listId} and k.address_hash = g.hash) as kept
        from unnest(
          ${people.map(({ email }) => email)}::text[],
          ${people.map(({ exclusion }) => exclusion)}::text[],
          ${people.map(({ email }) => hashAddress(vault, tenant, email))}::text[]) as g (email, exclusion, hash) offset 0) p
      -- Each look-up once, and not for each filter that reads it.
      offset 0
    ) m`.execute(kysely(em));
  return rows[0] ?? { ...NO_ONE, kept: 0, mailed: [] };
}

/** @returns the ids of the people whose subscription became CONFIRMED, and of the members who came onto the list */
async function subscribe(
  em: EntityManager,
  tenant: Tenant,
  list: List,
  people: readonly Person[],
  confirmed: boolean,
): Promise<{ ids: string[]; members: string[] }> {
  const start = startOf(tenant, list, confirmed);
  const onConflict = confirmed
    ? sql`do update
        set status = 'CONFIRMED', confirmed_at = now(), confirmation_due_at = null, confirmation_withheld = null
        where x.status = 'PENDING'`
    : sql`do nothing`;
  const events = { created: "subscription.created", changed: "subscription.confirmed" } as const;
  const joining = people.filter(({ exclusion }) => exclusion === null);
  const { rows } = await sql<{ ids: string[]; members: string[]; emitted: boolean }>`
    with written as (
      insert into subscriptions as x
        (list_id, subscriber_id, team_id, environment, status, confirmed_at, confirmation_due_at)
      select ${list.id}, m.id, ${tenant.teamId}, ${tenant.environment}, ${start.status},
        ${start.confirmed_at}::timestamptz, ${start.confirmation_due_at}::timestamptz
      from (${membersOf(tenant, joining)}) m order by m.id
      on conflict (list_id, subscriber_id) ${onConflict}
      returning xmax = 0 as created, list_id, subscriber_id, status, confirmed_at, confirmation_sent_at,
        confirmation_withheld, unsubscribed_at, created_at, updated_at
    ), ${emitWritten(tenant, events, subscriptionRecord)}
    select array(select subscriber_id from written where status = 'CONFIRMED') as ids,
      array(select subscriber_id from written where created) as members,
      exists (select from emitted) as emitted`.execute(kysely(em));
  const leaving = people.filter(({ exclusion }) => exclusion === OPTED_OUT);
  const optOuts = sql`select ${list.id} as list_id, m.id as subscriber_id, now() as unsubscribed_at
    from (${membersOf(tenant, leaving)}) m`;
  if (leaving.length > 0) await insertOptOuts(em, tenant, optOuts);
  const [{ emitted, ...joined } = { ids: [], members: [], emitted: false }] = rows;
  if (emitted) notifyRelayAfterCommit(em);
  return joined;
}
