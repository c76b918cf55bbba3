import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { freeSlots } from "../audience/contact-slots.ts";
import { subscriptionRows } from "../audience/opt-outs.ts";
import { emit } from "../webhooks/emit.ts";
import { contactRecord, subscriberRecord } from "../webhooks/records.ts";

/*
 * An import notes the rows that it makes, one row of `import_steps` for each of its steps; an undo takes them back step by step.
 * A row is as the import made it while its two timestamps are equal: both are the start of the transaction that wrote it.
 */

/** The rows that a step has made. */
export interface Made {
  /** Ids of subscribers or contacts. */
  people: readonly string[];
  /** Ids of the subscribers whose subscriptions to the import's list it made. */
  members: readonly string[];
  /** Ids of the contacts that hold the custom fields of subscribers. */
  contacts: readonly string[];
}

/** Why a person, or their subscription, stays. */
type Reason = "emailed" | "unsubscribed" | "changed" | "on_another_list";

export interface UndoReport {
  deleted: number;
  /** Subscriptions, also those of people who are deleted. */
  removed: number;
  /** Contacts that held the custom fields of subscribers. */
  contacts: number;
  /** People, by the first reason that applies. */
  kept: Partial<Record<Reason, number>>;
}

/** In the transaction of the step. */
export async function noteMade(
  em: EntityManager,
  importId: string,
  { kind, listId = null }: { kind: string; listId?: string | undefined | null },
  { people, members, contacts }: Made,
): Promise<void> {
  if (people.length + members.length + contacts.length === 0) return;
  const made = { people: [...people], members: [...members], contacts: [...contacts] };
  await kysely(em)
    .insertInto("import_steps")
    .values({ import_id: importId, kind, list_id: listId, ...made })
    .execute();
}

interface Step extends Made {
  kind: string;
  listId: string | null;
  madeAt: string;
}

type Table = "contacts" | "subscribers";

const tableOf = ({ kind }: Step): Table => (kind === "contacts" ? "contacts" : "subscribers");

/** SQL: how many of the rows that an import `imports` has made are not undone. */
export const countMade = (rows: keyof Made) => sql<number>`(
  select coalesce(sum(cardinality(m.${sql.ref(rows)})), 0)::int from import_steps m where m.import_id = imports.id)`;

/**
 * Takes one step of an import back, in the caller's transaction, which holds the import's row. Opt-outs, suppressions and answers
 * about tracking stay, and so do people who were in a send since, with their subscriptions.
 * @param before of the steps before @returns undefined when none is left
 */
export async function undoStep(
  em: EntityManager,
  tenant: Tenant,
  importId: string,
  before: UndoReport = { deleted: 0, removed: 0, contacts: 0, kept: {} },
): Promise<{ undone: UndoReport; rows: number } | undefined> {
  const { rows: steps } = await sql<Step>`
    delete from import_steps where seq = (select min(seq) from import_steps where import_id = ${importId})
    returning kind, list_id as "listId", people, members, contacts, made_at::text as "madeAt"`.execute(kysely(em));
  const [step] = steps;
  if (!step) return undefined;
  const { found, contacts, reasons } = await findPeople(em, tenant, step);

  const leaving = found.flatMap(({ leaves }) => leaves ?? []);
  if (leaving.length > 0) {
    const isLeaving = sql`s.ctid = any(${leaving}::tid[])`;
    await emit(em, tenant, "subscription.removed", subscriptionRows(tenant, isLeaving));
    await sql`delete from subscriptions s where ${ofTenant(tenant, "s")} and ${isLeaving}`.execute(kysely(em));
  }
  const gone = found.filter(({ isMade, reason }) => isMade && reason === null);
  await remove(em, tenant, tableOf(step), gone);
  await remove(em, tenant, "contacts", contacts);
  const emailsOf = (rows: readonly { email: string }[]) => rows.map(({ email }) => email);
  await freeSlots(em, tenant, emailsOf(gone), emailsOf(contacts));
  const kept = { ...before.kept };
  for (const reason of reasons.values()) if (reason !== null) kept[reason] = (kept[reason] ?? 0) + 1;
  const undone = {
    deleted: before.deleted + gone.length,
    removed: before.removed + leaving.length,
    contacts: before.contacts + contacts.length,
    kept,
  };
  return { undone, rows: step.people.length + step.members.length + step.contacts.length };
}

async function remove(em: EntityManager, tenant: Tenant, table: Table, gone: readonly Row[]): Promise<void> {
  if (gone.length === 0) return;
  const from = sql`${sql.table(table)} p
    where ${ofTenant(tenant, "p")} and p.ctid = any(${gone.map(({ row }) => row)}::tid[])`;
  if (table === "contacts") await emit(em, tenant, "contact.deleted", { record: contactRecord("p"), from });
  else await emit(em, tenant, "subscriber.deleted", { record: subscriberRecord("p"), from });
  await sql`delete from ${from}`.execute(kysely(em));
}

/** A send whose transaction began before the step may have read its rows. */
const MARGIN = sql`interval '10 minutes'`;
/** Nothing has happened but that a mail, which asks for the confirmation, was kept back. */
const ONLY_WITHHELD = sql`s.status = 'PENDING' and s.form_at is null and s.signed_up_again_at is null
  and coalesce(s.confirmation_withheld in ('suppressed', 'list_limit', 'address_limit', 'team_limit'), false)`;

/** The ctid of a row that is locked stays, and right after an import it alone finds the row fast under any statistics. */
interface Row {
  id: string;
  row: string;
}

/** Subscribers with a subscription in the bin: it returns with its list, and so they stay. @param ids SQL: of subscribers */
async function readBinned(em: EntityManager, tenant: Tenant, ids: RawBuilder<unknown>): Promise<string[]> {
  const { rows } = await sql<{ id: string }>`
    select distinct b.subscriber_id as id from bin_subscriptions b
    where ${ofTenant(tenant, "b")} and b.subscriber_id = any(${ids})`.execute(kysely(em));
  return rows.map(({ id }) => id);
}

interface LockedRow extends Row {
  email: string;
  isChanged: boolean;
}

/** @param isChanged SQL: of a row `p`, besides its timestamps */
async function lockRows(
  em: EntityManager,
  tenant: Tenant,
  table: Table,
  ids: readonly string[],
  isChanged = sql`false`,
): Promise<LockedRow[]> {
  const { rows } = await sql<LockedRow>`
    select p.id, p.ctid::text as row, p.email, p.updated_at <> p.created_at or ${isChanged} as "isChanged"
    from ${sql.table(table)} p where ${ofTenant(tenant, "p")} and p.id = any(${[...ids]}::text[])
    order by p.email for update`.execute(kysely(em));
  return rows;
}

const firstReason = (...cases: (readonly [boolean, Reason | null])[]): Reason | null =>
  cases.find(([applies, reason]) => applies && reason !== null)?.[1] ?? null;

/**
 * Locks the people of a step in the order of all statements that lock several, then their subscriptions, then the contacts with
 * their fields.
 * @returns `reason`: null where nothing of the step stays; `leaves`: the row of a subscription that is as the import made it;
 * `contacts` that leave: one stays where its subscriber does, who stays where it was changed or mailed; a contact has the subscriber of
 * its address, so one that was given another address leaves its subscriber; `reasons` by address
 */
async function findPeople(em: EntityManager, tenant: Tenant, step: Step) {
  const [made, members] = [new Set(step.people), new Set(step.members)];
  const all = [...new Set([...made, ...members])];
  const ids = sql`${all}::text[]`;
  const held = sql`select c.email from contacts c where ${ofTenant(tenant, "c")} and c.id = any(${[...step.contacts]}::text[])`;
  const { rows: mails } = await sql<{ id: string; email: string }>`
    select distinct r.member_id as id, r.email from sends d join send_recipients r on r.send_id = d.id
    where ${ofTenant(tenant, "d")} and d.created_at >= ${step.madeAt}::timestamptz - ${MARGIN}
      and (r.member_id = any(${[...all, ...step.contacts]}::text[]) or r.email in (${held}))
      and r.state not in ('SUPPRESSED', 'CANCELLED')`.execute(kysely(em));
  const people = await lockRows(em, tenant, tableOf(step), all);
  // Before and behind the others: a list may be deleted, or restored, meanwhile.
  const before = await readBinned(em, tenant, ids);
  const { rows: subscriptions } = await sql<Row & { listId: string; reason: Reason | null }>`
    select s.subscriber_id as id, s.ctid::text as row, s.list_id as "listId", case
        when s.confirmation_sent_at is not null then 'emailed'
        when s.status = 'UNSUBSCRIBED' then 'unsubscribed'
        when s.updated_at = s.created_at or ${ONLY_WITHHELD} then null
        when s.status = 'PENDING' then 'emailed'
        else 'changed' end as reason
    from subscriptions s where ${ofTenant(tenant, "s")} and s.subscriber_id = any(${ids})
    order by s.list_id, s.subscriber_id for update`.execute(kysely(em));
  const binned = new Set([...before, ...(await readBinned(em, tenant, ids))]);
  const mailed = new Set(mails.flatMap(({ id, email }) => [id, email]));
  const byPerson = Map.groupBy(subscriptions, ({ id }) => id);
  // Its subscriber has another address since, or is another one.
  const hasLost = sql`coalesce((select s.created_at from subscribers s where ${ofTenant(tenant, "s")} and s.email = p.email)
    > ${step.madeAt}::timestamptz, true)`;
  const contacts = await lockRows(em, tenant, "contacts", step.contacts, hasLost);
  const reasons = new Map<string, Reason | null>(
    contacts.map(({ id, email, isChanged }) => [
      email,
      firstReason([mailed.has(id) || mailed.has(email), "emailed"], [isChanged, "changed"]),
    ]),
  );
  const found = people.map(({ isChanged, ...person }) => {
    const isMade = made.has(person.id);
    const ofList = byPerson.get(person.id) ?? [];
    const own = ofList.find(({ id, listId }) => listId === step.listId && members.has(id));
    const others = ofList.filter((each) => each !== own);
    const ofContact = reasons.get(person.email) ?? null;
    const reason = firstReason(
      [mailed.has(person.id) || ofContact === "emailed", "emailed"],
      [own !== undefined, own?.reason ?? null],
      [isMade && isChanged, "changed"],
      [isMade && others.some((each) => each.reason === "unsubscribed"), "unsubscribed"],
      [(isMade && others.length > 0) || binned.has(person.id), "on_another_list"],
      [true, ofContact],
    );
    return { ...person, isMade, reason, leaves: own?.reason === null && reason !== "emailed" ? own.row : undefined };
  });
  for (const { email, reason } of found) reasons.set(email, reason);
  return { found, reasons, contacts: contacts.filter(({ email }) => reasons.get(email) === null) };
}
