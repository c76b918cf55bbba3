import { setTimeout as delay } from "node:timers/promises";
import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { queryVisibleBeforeMs } from "../../db/visible-before.ts";
import { freeSlot } from "../audience/contact-slots.ts";
import { suppress } from "../audience/suppressions.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { eraseAnswers, eraseDeliveries, eraseEvents, findMentions, type Mention } from "./erase-texts.ts";
import { completeErased, recordErased } from "./erased-addresses.ts";
import { change, countChanged, type ErasedRows, type Erasing } from "./erasing.ts";
import { mentionsOf } from "./mentions.ts";

/*
 * An erasure follows the copies of the address: from contacts and subscribers to the ledgers of sends, on to bounces,
 * opens and unsubscribes, and to events. After each stage it waits for the transactions that may still copy a row to
 * the next, so that only statements that let an address enter check for erased ones. Run again after an interruption,
 * it completes.
 */

export interface ErasureReport {
  /** This run searched again. */
  wasErased: boolean;
  rows: ErasedRows[];
  /** Not changed: the team decides about its own texts. */
  mentions: Mention[];
}

interface ErasureOptions {
  dryRun: boolean;
  /** For open transactions after one stage. */
  waitMs?: number;
  slackMs?: number | undefined;
  onStep?: (step: string) => void;
}

const WAIT_MS = 600_000;
const POLL_MS = 200;
const LEDGER_ROWS = 20_000;

/**
 * Erases a person from all rows of a tenant; until an operator readmits it, their address is refused. Figures and
 * credits stay, mails in flight still leave, and no event is emitted.
 * @param em in no transaction, with the tenant's filter
 * @param email in the spelling that addresses are compared by
 * @throws {ApiError} `resource_state_invalid` when transactions stay open for too long; a second run continues
 */
export async function erasePerson(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  email: string,
  { dryRun, waitMs = WAIT_MS, slackMs, onStep = () => {} }: ErasureOptions,
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
    await awaitTransactions(em, waitMs, slackMs);
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

async function awaitTransactions(em: EntityManager, waitMs: number, slackMs: number | undefined): Promise<void> {
  const { rows } = await sql<{ now: number }>`
    select (extract(epoch from clock_timestamp()) * 1000)::float8 as now`.execute(kysely(em.fork()));
  const [{ now } = { now: Date.now() }] = rows;
  for (const giveUpAt = performance.now() + waitMs; ; ) {
    const visibleBeforeMs = await queryVisibleBeforeMs(em.fork(), slackMs);
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
  after: number;
  upTo: number;
}

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
