import { setTimeout as delay } from "node:timers/promises";
import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { queryVisibleBeforeMs } from "../../db/visible-before.ts";
import { freeSlots } from "../audience/contact-slots.ts";
import { suppress } from "../audience/suppressions.ts";
import { ApiError } from "../errors.ts";
import { type RefusedLine, textOf, withoutPerson } from "../import/refused.ts";
import type { Vault } from "../secrets/crypto.ts";
import { eraseAnswers, eraseDeliveries, eraseEvents, findMentions, type Mention } from "./erase-texts.ts";
import { completeErased, recordErased } from "./erased-addresses.ts";
import { change, type ErasedRows, type Erasing, type Step } from "./erasing.ts";
import { mentionsOf } from "./mentions.ts";

/*
 * An erasure follows the copies of the address: from contacts and subscribers to the ledgers of sends, on to bounces,
 * opens and unsubscribes, and to events. After each stage it waits for the transactions that may still copy a row to
 * the next, so that only statements that let an address enter check for erased ones. Run again after an interruption,
 * it completes.
 */

export interface ErasureReport {
  wasErased: boolean;
  rows: ErasedRows[];
  /** Not changed: the team decides about its own texts. */
  mentions: Mention[];
}

export interface ErasureOptions {
  dryRun: boolean;
  waitMs?: number | undefined;
  slackMs?: number | undefined;
  onStep?: (step: string) => void;
}

const WAIT_MS = 600_000;
const POLL_MS = 200;
/** A statement looks through so many rows of mails, or through so many sends. */
const [LEDGER_ROWS, MOST_SENDS] = [20_000, 1_000];

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
  const refuse = async (tx: EntityManager) => ({
    ...(await recordErased(tx, vault, tenant, email)),
    // Sends under way no longer stage the person, although their rows still hold the address.
    isSuppressed: (await suppress(tx, tenant, [email], "MANUAL")).added.length === 0,
  });
  const { isNew, isSuppressed, ...erased } = await transaction(em, refuse, { isRolledBack: dryRun });
  const erasing: Erasing = {
    ...{ em, tenant, email, dryRun, ...erased },
    mentions: mentionsOf(email),
    report: new Map(),
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
  const report = { rows: [...erasing.report.values()], mentions };
  const complete = async (tx: EntityManager) => {
    await completeErased(tx, vault, tenant, email);
    // Those of ADMINs, also where a command has erased the person meanwhile.
    await sql`update person_requests set state = 'DONE', step = null, email = null, outcome = ${JSON.stringify(report)}::jsonb
      where ${ofTenant(tenant)} and email = ${email} and kind = 'ERASURE'`.execute(kysely(tx));
  };
  await transaction(em, complete, { isRolledBack: dryRun });
  return { wasErased: !isNew, ...report };
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
  const isOfPerson = sql`${ofTenant(tenant)} and email = ${email}`;
  await change(erasing, async ({ tx, run }) => {
    const contacts = await run("contacts", "deleted", sql`delete from contacts where ${isOfPerson}`);
    for (const table of ["subscriptions", "bin_subscriptions"] as const) {
      const ofSubscriber = sql`subscriber_id in (select id from subscribers where ${isOfPerson} for update)`;
      await run(table, "deleted", sql`delete from ${sql.table(table)} where ${ofTenant(tenant)} and ${ofSubscriber}`);
    }
    // An export that is under way finds its row gone.
    await run("person_requests", "deleted", sql`delete from person_requests where ${isOfPerson} and kind = 'EXPORT'`);
    const subscribers = await run("subscribers", "deleted", sql`delete from subscribers where ${isOfPerson}`);
    await run(
      "confirmation_mails",
      "deleted",
      sql`delete from confirmation_mails where ${ofTenant(tenant)} and (mailbox = ${email} or email = ${email})`,
    );
    for (let records = contacts + subscribers; records > 0; records--) await freeSlots(tx, tenant, [email]);
  });
}

type TableOfMails = "send_recipients" | "engagements" | "mail_reports";

/** Of the mails of a tenant: ids of sends, and behind which number of each it begins. */
interface PartOfMails {
  sends: string[];
  starts: number[];
}

async function readPartsOfMails({ em, tenant }: Erasing): Promise<PartOfMails[]> {
  const most = sql.lit(LEDGER_ROWS);
  const { rows } = await sql<PartOfMails>`
    select array_agg(p.id) as sends, array_agg(p.start) as starts from (
      select s.id, n.start,
        sum(greatest(least(l.last - n.start, ${most}), ${sql.lit(LEDGER_ROWS / MOST_SENDS)})) over (order by s.id, n.start)
          / ${most} as part
      from sends s
      cross join lateral (select max(r.seq) as last from send_recipients r where r.send_id = s.id) l
      cross join lateral generate_series(0, l.last - 1, ${most}) n (start)
      where ${ofTenant(tenant, "s")}) p
    group by p.part`.execute(kysely(em.fork()));
  return rows;
}

/**
 * Finds the person's rows in a table of mails. It has no index by address, which each mail would have to write: a statement looks
 * through 1,000 small sends at most, or through a part of a large one.
 * @returns SQL, each: a table `m` of ids of sends and numbers of recipients
 */
async function* findMails(
  { em, tenant, email }: Erasing,
  table: TableOfMails,
  parts: readonly PartOfMails[],
): AsyncGenerator<RawBuilder<unknown>> {
  const db = kysely(em.fork());
  const most = sql.lit(LEDGER_ROWS);
  const isOwn = table === "send_recipients" ? sql`true` : ofTenant(tenant, "r");
  for (const { sends, starts } of parts) {
    // The offset keeps Postgres from a join that reads the mails of all teams.
    const { rows } = await sql<{ send: string; seq: number }>`
      select r.send_id as send, r.seq from unnest(${sends}::text[], ${starts}::int[]) p (send_id, start)
      cross join lateral (
        select r.send_id, r.seq from ${sql.table(table)} r
        where r.send_id = p.send_id and r.seq > p.start and r.seq <= p.start + ${most}
          and ${isOwn} and r.email = ${email} offset 0) r`.execute(db);
    const [ids, seqs] = [rows.map(({ send }) => send), rows.map(({ seq }) => seq)];
    if (rows.length > 0) yield sql`unnest(${ids}::text[], ${seqs}::int[]) m (send_id, seq)`;
  }
}

/** The rows stay, because their states add up to the plan. A row that waits to be mailed becomes SUPPRESSED. */
async function eraseLedgers(erasing: Erasing): Promise<void> {
  const waits = sql`state in ('QUEUED', 'DEFERRED')`;
  for await (const mails of findMails(erasing, "send_recipients", await readPartsOfMails(erasing))) {
    await change(erasing, async ({ run }) => {
      await run(
        "pending_hits",
        "deleted",
        sql`delete from pending_hits h using ${mails} where h.send_id = m.send_id and h.seq = m.seq`,
      );
      await run(
        "send_recipients",
        "blanked",
        sql`
        update send_recipients r set email = ${erasing.placeholder}, email_spelling = null, first_name = null,
          last_name = null, fields = null,
          reason = case when ${waits} then 'suppressed' else reason end,
          retry_at = case when ${waits} then null else retry_at end,
          updated_at = case when ${waits} then now() else updated_at end,
          state = case when ${waits} then 'SUPPRESSED' else state end
        from ${mails} where r.send_id = m.send_id and r.seq = m.seq and r.email = ${erasing.email}`,
      );
    });
  }
}

/** Outcomes of imports: lines that they refused, and headers of files without one. */
async function eraseImports({ tenant, mentions, placeholder }: Erasing, { tx, run }: Step): Promise<void> {
  const { rows } = await sql<{ id: string; outcome: { refused?: RefusedLine[] } }>`
    select id, outcome from imports where ${ofTenant(tenant)} and strpos(lower(outcome::text), ${mentions.part}) > 0
    order by id for update`.execute(kysely(tx));
  for (const { id, outcome } of rows) {
    const refused = outcome.refused?.map((line) => (mentions.in(textOf(line)) ? withoutPerson(line) : line));
    const erased = mentions.redact(JSON.stringify({ ...outcome, refused }), placeholder);
    if (erased === JSON.stringify(outcome)) continue;
    const statement = sql`update imports set outcome = ${erased}::jsonb where ${ofTenant(tenant)} and id = ${id}`;
    await run("imports", "blanked", statement);
  }
}

async function eraseResponses(erasing: Erasing, isSuppressed: boolean): Promise<void> {
  const { tenant, email, placeholder } = erasing;
  const parts = await readPartsOfMails(erasing);
  for (const [table, address] of [
    ["engagements", placeholder],
    ["mail_reports", null],
  ] as const) {
    for await (const mails of findMails(erasing, table, parts)) {
      const isFound = sql`${ofTenant(tenant, "r")} and r.send_id = m.send_id and r.seq = m.seq and r.email = ${email}`;
      const blank = sql`update ${sql.table(table)} r set email = ${address} from ${mails} where ${isFound}`;
      await change(erasing, ({ run }) => run(table, "blanked", blank));
    }
  }
  const isOfPerson = sql`${ofTenant(tenant)} and email = ${email}`;
  await change(erasing, async ({ tx, count, run }) => {
    const removeChecks = sql`delete from contact_status_checks where ${isOfPerson}`;
    await run(
      "unsubscribes",
      "blanked",
      sql`update unsubscribes set email = ${placeholder}, email_spelling = null where ${isOfPerson}`,
    );
    await run("contact_status_checks", "deleted", removeChecks);
    await eraseImports(erasing, { tx, count, run });
    await run("tracking_consents", "deleted", sql`delete from tracking_consents where ${isOfPerson}`);
    const { numAffectedRows = 0n } = await sql`delete from suppressions where ${isOfPerson}`.execute(kysely(tx));
    count("suppressions", "deleted", isSuppressed ? Number(numAffectedRows) : 0);
    // A trigger of `suppressions` adds a check when a hard bounce is deleted.
    await removeChecks.execute(kysely(tx));
  });
}
