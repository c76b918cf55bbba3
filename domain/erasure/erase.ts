import { setTimeout as delay } from "node:timers/promises";
import { type Expression, type RawBuilder, sql } from "kysely";
import { type Database, type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { queryVisibleBeforeMs } from "../../db/visible-before.ts";
import { freeSlot } from "../audience/contact-slots.ts";
import type { Vault } from "../crypto.ts";
import { ApiError } from "../errors.ts";
import { replaceAnswers } from "../idempotency.ts";
import { suppress } from "../suppressions.ts";
import { columnsWith } from "./columns.ts";
import { completeErased, recordErased } from "./erased-addresses.ts";
import { type Mentions, mentionsOf } from "./mentions.ts";

/*
 * An erasure follows the copies of the address: from contacts and subscribers to the ledgers of sends, from these to
 * bounces, opens and unsubscribes, and from all of them to events. After each stage it waits until all transactions
 * have ended that may still copy a row of that stage to the next. So only the statements that let an address enter have
 * to check for erased addresses, and none of them needs a lock.
 *
 * Each stage consists of short transactions and finds its rows by the address alone: after an interruption, the same
 * command completes it.
 */

type Table = keyof Database;

/** Rows of a table that an erasure changed, or would change. */
export interface ErasedRows {
  table: Table;
  action: "deleted" | "blanked";
  rows: number;
}

/** A record in which a text of the team names the address. */
export interface Mention {
  table: Table;
  id: string;
}

export interface ErasureReport {
  /** An earlier run erased the address; this run searched again. */
  wasErased: boolean;
  /** The tables with erased rows. */
  rows: ErasedRows[];
  /** Not changed: the team decides about its own texts. */
  mentions: Mention[];
}

interface ErasureOptions {
  /** Count the rows, and change none. */
  dryRun: boolean;
  /** Longest wait for open transactions after one stage; 10 minutes unless given. */
  waitMs?: number;
  /** Called with the name of the next step. */
  onStep?: (step: string) => void;
}

const WAIT_MS = 600_000;
const POLL_MS = 200;
/** Rows of a ledger that one statement reads. */
const LEDGER_ROWS = 20_000;
/** Rows with texts that one statement reads. */
const TEXT_ROWS = 2_000;
/**
 * Longest wait for attempts that began before their events were redacted: an activity makes requests for 30 s, and
 * tries to record their outcomes for 20 s.
 */
const ATTEMPT_MS = 60_000;

/** The erasure of one person under way. */
interface Erasing {
  em: EntityManager;
  tenant: Tenant;
  email: string;
  /** Replaces the address in rows that stay. */
  placeholder: string;
  /** An earlier run was cut off. */
  isResumed: boolean;
  mentions: Mentions;
  dryRun: boolean;
  count(table: Table, action: ErasedRows["action"], rows: number): void;
}

/** Thrown to roll back the transaction of a dry run. */
class DryRunDone<T> {
  readonly result: T;

  constructor(result: T) {
    this.result = result;
  }
}

/** Runs a change in a short transaction, which a dry run rolls back. */
async function change<T>(
  { em, dryRun }: Pick<Erasing, "em" | "dryRun">,
  work: (tx: EntityManager) => Promise<T>,
): Promise<T> {
  try {
    return await transaction(em, async (tx) => {
      const result = await work(tx);
      if (dryRun) throw new DryRunDone(result);
      return result;
    });
  } catch (thrown) {
    if (thrown instanceof DryRunDone) return thrown.result;
    throw thrown;
  }
}

/**
 * Erases the person with an address from all rows of a tenant. From then on the address is refused in every request,
 * until an operator readmits it. The figures of analytics and credits stay. Mails in flight still leave. No event is
 * emitted.
 * @param em in no transaction, with the tenant's filter
 * @param email in the spelling that addresses are compared by
 * @throws {ApiError} `resource_state_invalid` when transactions stay open for too long; by then the address is refused
 *   and no longer mailed; a second run continues
 */
export async function erasePerson(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
  { dryRun, waitMs = WAIT_MS, onStep = () => {} }: ErasureOptions,
): Promise<ErasureReport> {
  onStep("refusing the address");
  const { isNew, isSuppressed, ...erased } = await change({ em, dryRun }, async (tx) => ({
    ...(await recordErased(tx, vault, tenant, email)),
    // Sends under way no longer stage the person, although their rows still hold the address.
    isSuppressed: (await suppress(tx, tenant, [email], "MANUAL")).added.length === 0,
  }));
  const counts = new Map<string, ErasedRows>();
  const erasing: Erasing = {
    em,
    tenant,
    email,
    ...erased,
    mentions: mentionsOf(email),
    dryRun,
    count(table, action, rows) {
      if (rows === 0) return;
      const known = counts.get(table);
      if (known) known.rows += rows;
      else counts.set(table, { table, action, rows });
    },
  };
  const awaitOpen = async () => {
    if (dryRun) return;
    onStep("waiting for transactions that are open");
    await awaitTransactions(em, waitMs);
  };

  await awaitOpen();
  onStep("contacts and subscribers");
  await eraseAudience(erasing);
  await awaitOpen();
  onStep("ledgers of sends");
  await eraseLedgers(erasing);
  await awaitOpen();
  onStep("bounces, opens and unsubscribes");
  await eraseResponses(erasing, isSuppressed);
  onStep("events");
  const eventIds = await eraseEvents(erasing);
  onStep("deliveries of the events");
  await eraseDeliveries(erasing, eventIds);
  onStep("remembered answers");
  await eraseAnswers(erasing);
  onStep("texts of the team");
  const mentions = await findMentions(erasing);
  await change(erasing, (tx) => completeErased(tx, vault, tenant, email));
  return { wasErased: !isNew, rows: [...counts.values()], mentions };
}

/** Runs a statement. @returns how many rows it changed */
async function countChanged(tx: EntityManager, statement: RawBuilder<unknown>): Promise<number> {
  const { numAffectedRows = 0n } = await statement.execute(kysely(tx));
  return Number(numAffectedRows);
}

/** Waits until every transaction has ended that is open now. */
async function awaitTransactions(em: EntityManager, waitMs: number): Promise<void> {
  const { rows } = await sql<{ now: number }>`
    select (extract(epoch from clock_timestamp()) * 1000)::float8 as now`.execute(kysely(em.fork()));
  const [{ now } = { now: Date.now() }] = rows;
  for (const giveUpAt = performance.now() + waitMs; ; ) {
    const visibleBeforeMs = await queryVisibleBeforeMs(em.fork());
    if (visibleBeforeMs !== null && visibleBeforeMs > now) return;
    if (performance.now() > giveUpAt) {
      throw new ApiError(
        "resource_state_invalid",
        "Transactions are open that may still hold the person. The address is refused and not mailed already. " +
          "Let them end (see pg_stat_activity and pg_prepared_xacts) and run the command again.",
      );
    }
    await delay(POLL_MS);
  }
}

async function eraseAudience(erasing: Erasing): Promise<void> {
  const { tenant, email } = erasing;
  const deleted = await change(erasing, async (tx) => {
    const remove = (table: "contacts" | "subscribers" | "confirmation_mails", condition: RawBuilder<unknown>) =>
      countChanged(tx, sql`delete from ${sql.table(table)} where ${ofTenant(tenant)} and ${condition}`);
    const isOfPerson = sql`email = ${email}`;
    const contacts = await remove("contacts", isOfPerson);
    const subscriptions = await countChanged(
      tx,
      sql`delete from subscriptions where ${ofTenant(tenant)} and subscriber_id in (
        select id from subscribers where ${ofTenant(tenant)} and ${isOfPerson} for update)`,
    );
    const subscribers = await remove("subscribers", isOfPerson);
    const confirmations = await remove("confirmation_mails", sql`(mailbox = ${email} or ${isOfPerson})`);
    // The locks of the slots come last.
    for (let records = contacts + subscribers; records > 0; records--) await freeSlot(tx, tenant, email);
    return { contacts, subscriptions, subscribers, confirmations };
  });
  erasing.count("contacts", "deleted", deleted.contacts);
  erasing.count("subscribers", "deleted", deleted.subscribers);
  erasing.count("subscriptions", "deleted", deleted.subscriptions);
  erasing.count("confirmation_mails", "deleted", deleted.confirmations);
}

interface LedgerRange {
  sendId: string;
  /** The range begins behind this row and ends with row `upTo`. */
  after: number;
  upTo: number;
}

/** The ledgers of the tenant's sends, in parts. */
async function* ledgerRanges({ em, tenant }: Erasing): AsyncGenerator<LedgerRange> {
  const { rows } = await sql<{ id: string; last: number | null }>`
    select s.id, (select max(r.seq) from send_recipients r where r.send_id = s.id) as last
    from sends s where ${ofTenant(tenant, "s")} order by s.id`.execute(kysely(em.fork()));
  for (const { id: sendId, last } of rows) {
    for (let after = 0; after < (last ?? 0); after += LEDGER_ROWS) yield { sendId, after, upTo: after + LEDGER_ROWS };
  }
}

const inRange = ({ sendId, after, upTo }: LedgerRange) =>
  sql`send_id = ${sendId} and seq > ${after} and seq <= ${upTo}`;

/** The rows stay, because their states add up to the plan. A row that waits to be mailed becomes SUPPRESSED. */
async function eraseLedgers(erasing: Erasing): Promise<void> {
  const waits = sql`state in ('QUEUED', 'DEFERRED')`;
  for await (const range of ledgerRanges(erasing)) {
    const rows = await change(erasing, (tx) =>
      countChanged(
        tx,
        sql`
        update send_recipients set email = ${erasing.placeholder}, email_spelling = null, first_name = null,
          last_name = null, fields = null,
          reason = case when ${waits} then 'suppressed' else reason end,
          retry_at = case when ${waits} then null else retry_at end,
          updated_at = case when ${waits} then now() else updated_at end,
          state = case when ${waits} then 'SUPPRESSED' else state end
        where ${inRange(range)} and email = ${erasing.email}`,
      ),
    );
    erasing.count("send_recipients", "blanked", rows);
  }
}

/** @param isSuppressed the address was suppressed before the erasure */
async function eraseResponses(erasing: Erasing, isSuppressed: boolean): Promise<void> {
  const { tenant, email, placeholder } = erasing;
  for await (const range of ledgerRanges(erasing)) {
    const where = sql`${inRange(range)} and ${ofTenant(tenant)} and email = ${email}`;
    const { engagements, reports } = await change(erasing, async (tx) => ({
      engagements: await countChanged(tx, sql`update engagements set email = ${placeholder} where ${where}`),
      reports: await countChanged(tx, sql`update mail_reports set email = null where ${where}`),
    }));
    erasing.count("engagements", "blanked", engagements);
    erasing.count("mail_reports", "blanked", reports);
  }
  const isOfPerson = sql`${ofTenant(tenant)} and email = ${email}`;
  const { unsubscribes, checks, suppressions } = await change(erasing, async (tx) => {
    const removeChecks = sql`delete from contact_status_checks where ${isOfPerson}`;
    const result = {
      unsubscribes: await countChanged(
        tx,
        sql`
        update unsubscribes set email = ${placeholder}, email_spelling = null where ${isOfPerson}`,
      ),
      checks: await countChanged(tx, removeChecks),
      suppressions: await countChanged(tx, sql`delete from suppressions where ${isOfPerson}`),
    };
    // A trigger of `suppressions` adds a check when a hard bounce is deleted.
    await countChanged(tx, removeChecks);
    return result;
  });
  erasing.count("unsubscribes", "blanked", unsubscribes);
  erasing.count("contact_status_checks", "deleted", checks);
  erasing.count("suppressions", "deleted", isSuppressed ? suppressions : 0);
}

interface TextSource {
  table: Table;
  /** The last column of the primary key; `within` fixes the columns before it. */
  key: string;
  columns: readonly string[];
  /** Condition on the columns before `key`; without it the whole table is read in the order of its key. */
  within?: Expression<unknown>;
  /** Condition of the tenant's rows. */
  owned: Expression<unknown>;
  /** Condition of rows that are returned even if their texts do not name the address. */
  also?: Expression<unknown>;
}

interface FoundText {
  key: string;
  text: string;
}

/** Finds rows whose texts may name the address, in batches. */
async function* findTexts(
  { em, mentions }: Pick<Erasing, "em" | "mentions">,
  { table, key, columns, within = sql`true`, owned, also = sql`false` }: TextSource,
): AsyncGenerator<FoundText[]> {
  const column = sql.ref(`b.${key}`);
  const text = sql`concat_ws(' ', ${sql.join(columns.map((name) => sql`${sql.ref(name)}::text`))})`;
  for (let after = key === "seq" ? "0" : ""; ; ) {
    const { rows } = await sql<{ last: string; rows: number; key: string | null; text: string }>`
      with batch as materialized (
        select b.* from ${sql.table(table)} b where ${within} and ${column} > ${after} order by ${column} limit ${TEXT_ROWS}
      ), found as (
        select ${column}::text as key, ${text} as text from batch b
        where ${owned} and (${also} or strpos(lower(${text}), ${mentions.part}) > 0)
      )
      select l.last, l.rows, f.key, f.text
      from (select max(${column})::text as last, count(*)::int as rows from batch b) l left join found f on true`.execute(
      kysely(em.fork()),
    );
    const found = rows.flatMap((row) => (row.key === null ? [] : [{ key: row.key, text: row.text }]));
    if (found.length > 0) yield found;
    const [{ last, rows: read } = { last: after, rows: 0 }] = rows;
    if (read < TEXT_ROWS) return;
    after = last;
  }
}

/** A table with JSON of records. */
interface Records {
  table: "webhook_outbox" | "webhook_events";
  key: "seq" | "id";
  column: "objects" | "object";
}

/** Redacts the person in some rows. @returns how many of the rows still existed */
async function redactRows(
  { tenant, mentions, placeholder }: Erasing,
  tx: EntityManager,
  { table, key, column }: Records,
  keys: readonly string[],
): Promise<number> {
  const keyType = key === "seq" ? sql`bigint[]` : sql`text[]`;
  // The relay may have turned some rows of the outbox into events meanwhile.
  const { rows } = await sql<FoundText>`
    select ${sql.ref(key)}::text as key, ${sql.ref(column)} as text from ${sql.table(table)}
    where ${ofTenant(tenant)} and ${sql.ref(key)} = any(${[...keys]}::${keyType})
    order by ${sql.ref(key)} for update`.execute(kysely(tx));
  await sql`
    update ${sql.table(table)} t set ${sql.ref(column)} = g.text
    from unnest(${rows.map((row) => row.key)}::${keyType}, ${rows.map(({ text }) => mentions.redact(text, placeholder))}::text[])
      as g (key, text)
    where ${ofTenant(tenant, "t")} and t.${sql.ref(key)} = g.key`.execute(kysely(tx));
  return rows.length;
}

/**
 * Events keep their ids and lose the person, so that waiting deliveries continue as usual. The outbox comes first:
 * records that the relay takes from it meanwhile are found among the events.
 * @returns the events whose deliveries may hold answers about the person
 */
async function eraseEvents(erasing: Erasing): Promise<string[]> {
  await redactRecords(erasing, { table: "webhook_outbox", key: "seq", column: "objects" });
  return redactRecords(erasing, { table: "webhook_events", key: "id", column: "object" });
}

/** @returns the keys of the rows without the person: of a run that is resumed, also of those that earlier runs left so */
async function redactRecords(erasing: Erasing, records: Records): Promise<string[]> {
  const { isResumed, mentions, placeholder } = erasing;
  const { table, key, column } = records;
  const redacted: string[] = [];
  for await (const found of findTexts(erasing, {
    table,
    key,
    columns: [column],
    owned: ofTenant(erasing.tenant, "b"),
    also: isResumed ? sql`strpos(${sql.ref(column)}, ${placeholder}) > 0` : sql`false`,
  })) {
    const named = found.filter(({ text }) => mentions.in(text)).map((row) => row.key);
    redacted.push(...named, ...found.filter(({ text }) => text.includes(placeholder)).map((row) => row.key));
    if (named.length === 0) continue;
    erasing.count(table, "blanked", await change(erasing, (tx) => redactRows(erasing, tx, records, named)));
  }
  return redacted;
}

/**
 * Waits for attempts in flight that read these events before they were redacted: their answers may repeat the person.
 */
async function awaitAttempts({ em, tenant }: Erasing, eventIds: readonly string[]): Promise<void> {
  const { rows: attempts } = await sql<{ id: string; epoch: number }>`
    select g.id, g.epoch from webhook_groups g where ${ofTenant(tenant, "g")} and g.attempting and exists (
      select from webhook_deliveries d
      where ${ofTenant(tenant, "d")} and d.group_id = g.id and d.event_id = any(${[...eventIds]}::text[]))`.execute(
    kysely(em.fork()),
  );
  for (const giveUpAt = performance.now() + ATTEMPT_MS; performance.now() < giveUpAt; await delay(POLL_MS)) {
    const { rows } = await sql`
      select from webhook_groups g join unnest(${attempts.map(({ id }) => id)}::text[],
        ${attempts.map(({ epoch }) => epoch)}::int[]) as a (id, epoch) on a.id = g.id and a.epoch = g.epoch
      where ${ofTenant(tenant, "g")} and g.attempting`.execute(kysely(em.fork()));
    if (rows.length === 0) return;
  }
}

/** The log keeps each delivery without the answer of its endpoint. */
async function eraseDeliveries(erasing: Erasing, eventIds: readonly string[]): Promise<void> {
  if (!erasing.dryRun) await awaitAttempts(erasing, eventIds);
  const ofEvents = sql`event_id = any(${[...eventIds]}::text[])`;
  for await (const found of findTexts(erasing, {
    table: "webhook_deliveries",
    key: "id",
    columns: ["response_body", "error_message"],
    owned: ofTenant(erasing.tenant, "b"),
    also: sql`(response_body is not null and ${ofEvents})`,
  })) {
    const ids = found.map(({ key }) => key);
    const named = found.filter(({ text }) => erasing.mentions.in(text)).map(({ key }) => key);
    const isNamed = sql`id = any(${named}::text[])`;
    const rows = await change(erasing, (tx) =>
      countChanged(
        tx,
        sql`
        update webhook_deliveries
        set response_body = null, error_message = case when ${isNamed} then null else error_message end
        where ${ofTenant(erasing.tenant)} and id = any(${ids}::text[]) and (${isNamed} or ${ofEvents})`,
      ),
    );
    erasing.count("webhook_deliveries", "blanked", rows);
  }
}

/** A repeated request gets a refusal from then on. Sealed answers hold secrets of endpoints and no personal data. */
async function eraseAnswers(erasing: Erasing): Promise<void> {
  const { tenant, mentions } = erasing;
  const refusal = new ApiError("person_erased", "The answer showed a person who asked for their data to be erased.");
  for await (const found of findTexts(erasing, {
    table: "idempotency_records",
    key: "key_hash",
    columns: ["payload"],
    within: ofTenant(tenant, "b"),
    owned: sql`b.payload_kind <> 'sealed'`,
  })) {
    const keyHashes = found.filter(({ text }) => mentions.in(text)).map(({ key }) => key);
    if (keyHashes.length === 0) continue;
    const rows = await change(erasing, (tx) => replaceAnswers(tx, tenant, keyHashes, refusal));
    erasing.count("idempotency_records", "blanked", rows);
  }
}

/** Texts about other people in which the team may have named the person. */
const TEXTS_ABOUT_OTHERS: [Table, readonly string[]][] = [
  ["contacts", ["first_name", "last_name", "fields"]],
  ["subscribers", ["first_name", "last_name"]],
];

async function findMentions({ em, tenant, mentions }: Erasing): Promise<Mention[]> {
  const ownedIn = (table: Table) => {
    if (table === "teams") return sql`b.id = ${tenant.teamId}`;
    return table === "members" ? sql`b.team_id = ${tenant.teamId}` : ofTenant(tenant, "b");
  };
  const found: Mention[] = [];
  for (const [table, columns] of [...columnsWith("team"), ...TEXTS_ABOUT_OTHERS]) {
    for await (const texts of findTexts({ em, mentions }, { table, key: "id", columns, owned: ownedIn(table) })) {
      found.push(...texts.filter(({ text }) => mentions.in(text)).map(({ key }) => ({ table, id: key })));
    }
  }
  return found;
}
