import { sql } from "kysely";
import type { Env } from "../../config/env.ts";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import { type MailReportKind, SOFT_REFUSAL, UNKNOWN_REPORTER } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { shownAddress } from "../address.ts";
import { HARD_BOUNCE } from "../audience/email-status.ts";
import { suppress } from "../audience/suppressions.ts";
import type { MailRef } from "../mail/links.ts";
import { pauseForComplaints } from "../sends/ledger/lifecycle.ts";
import type { ResourceType } from "../sends/resource.ts";
import type { SendMove } from "../sends/send-log.ts";
import { emit } from "../webhooks/emit.ts";
import { emailRecord } from "../webhooks/records.ts";

/** The provider took the mail and did not try to deliver it. Also the reason of the ledger's row, which becomes REJECTED. */
const DROPPED = "dropped_by_provider";

/** About one mail that its server had accepted. */
export interface MailReport extends MailRef {
  kind: MailReportKind | typeof DROPPED;
  /** It does not count against the address. */
  isSendersFault?: boolean;
  /** Absent where the mail was dropped for the mail or its sender. */
  suppressAs?: SuppressionReason | undefined;
}

export type ReportFinding = Omit<MailReport, keyof MailRef>;

/** After so many in so many days an address is suppressed. */
export type SoftBouncePolicy = Pick<Env, "SOFT_BOUNCES_TO_SUPPRESS" | "SOFT_BOUNCE_WINDOW_DAYS">;

/**
 * `known`: recorded by an earlier call. `unsettled`: the outcome is not written yet; report it again in a moment.
 * `not_mailed`: there is no such mail, or it never left.
 */
export type ReportOutcome = "recorded" | "known" | "unsettled" | "not_mailed";

interface RecordOptions {
  /** Of any tenant unless given. */
  tenant?: Tenant;
  onPause?: (paused: SendMove) => void;
}

/**
 * Records reports, each once per mail and kind, with the suppression that follows and the events of both: those about a
 * send in a transaction, or in the caller's. A repeated one changes nothing, even if its suppression was lifted since. Then the sends
 * of a team with too many complaints are paused, also after a repeated report: the process may have died before.
 * @returns the outcome of each report, in their order
 */
export async function recordReports(
  em: EntityManager,
  reports: readonly MailReport[],
  policy: SoftBouncePolicy,
  { tenant, onPause = () => {} }: RecordOptions = {},
): Promise<ReportOutcome[]> {
  if (reports.length === 0) return [];
  const bySend = Map.groupBy(reports, ({ sendId }) => sendId);
  const outcomes = new Map<string, ReportOutcome>();
  const sends = await readSends(em, [...bySend.keys()], tenant);
  for (const send of sends) {
    const reportsOfSend = bySend.get(send.id) ?? [];
    const mails = await transaction(em, (tx) => recordBatch(tx, send, reportsOfSend, policy));
    for (const mail of mails) outcomes.set(keyOf({ ...mail, sendId: send.id }), mail.outcome);
  }
  // After the commit: of calls at the same time, the last one then counts all complaints.
  const tenants = Map.groupBy(sends, ({ teamId, environment }) => `${teamId} ${environment}`);
  for (const [send] of tenants.values()) {
    if (send) for (const paused of await pauseForComplaints(em, send)) onPause(paused);
  }
  return reports.map((report) => outcomes.get(keyOf(report)) ?? "not_mailed");
}

export async function recordReport(
  em: EntityManager,
  report: MailReport,
  policy: SoftBouncePolicy,
  options?: RecordOptions,
): Promise<ReportOutcome> {
  const [outcome = "not_mailed"] = await recordReports(em, [report], policy, options);
  return outcome;
}

const keyOf = ({ sendId, seq, kind }: MailRef & Pick<MailReport, "kind">): string => `${sendId} ${seq} ${kind}`;

interface ReportedSend extends Tenant {
  id: string;
  resourceType: ResourceType;
  resourceId: string;
}

/** In one order, in which two calls lock the rows of sends. */
async function readSends(em: EntityManager, ids: readonly string[], tenant?: Tenant): Promise<ReportedSend[]> {
  const rows = await kysely(em)
    .selectFrom("sends")
    .select(["id", "team_id as teamId", "environment", "resource_type as resourceType", "resource_id as resourceId"])
    .where("id", "=", sql<string>`any(${ids})`)
    .$if(tenant !== undefined, (query) => (tenant ? query.where(ofTenant(tenant)) : query))
    .orderBy("id")
    .execute();
  return rows;
}

interface CountedAddress {
  email: string;
  emailSpelling: string | null;
}

interface ReportedMail extends CountedAddress {
  seq: number;
  kind: MailReport["kind"];
  /** As a soft bounce of the address. */
  counts: boolean;
  suppressAs: SuppressionReason | null;
  outcome: ReportOutcome;
}

/** With both columns of the key: without statistics the planner would read all rows of the send for each report. */
const rowsOf = (sendId: string, seqs: readonly number[]) => sql`r.send_id = ${sendId} and r.seq = any(${seqs}::int[])`;

/** The server has the mail, or may have it. */
const MAILED = sql`('SENT', 'UNKNOWN')`;

/** @returns the mails that the ledger has */
async function recordBatch(
  em: EntityManager,
  send: ReportedSend,
  reports: readonly MailReport[],
  policy: SoftBouncePolicy,
): Promise<ReportedMail[]> {
  const counts = ({ kind, isSendersFault = false }: MailReport) => kind === "bounce:soft" && !isSendersFault;
  const seqs = reports.map(({ seq }) => seq);
  // The update has its cost even when it finds no row. A mail that came back was tried.
  const dropped = reports.some(({ kind }) => kind === DROPPED)
    ? sql`, dropped as (
      update send_recipients r set state = 'REJECTED', reason = ${DROPPED}, updated_at = now() from mails m
      where ${rowsOf(send.id, seqs)} and m.seq = r.seq and m.kind = ${DROPPED} and r.state in ${MAILED}
        and not exists (select from mail_reports p where p.send_id = r.send_id and p.seq = r.seq)
      returning m.seq, m.kind
    ), changed as (select * from recorded union all select * from dropped)`
    : sql`, changed as (select * from recorded)`;
  const { rows } = await sql<ReportedMail>`
    with given as (
      select seq, kind, bool_or(counts) as counts, min(suppress_as) as suppress_as
      from unnest(
        ${seqs}::int[],
        ${reports.map(({ kind }) => kind)}::text[],
        ${reports.map(counts)}::boolean[],
        ${reports.map(({ suppressAs }) => suppressAs ?? null)}::text[]
      ) as g (seq, kind, counts, suppress_as)
      group by seq, kind
    ), mails as (
      select g.kind, g.counts, g.suppress_as, r.seq, r.state, r.reason, r.email, r.email_spelling
      from given g join send_recipients r on r.seq = g.seq
      where ${rowsOf(send.id, seqs)}
    ), recorded as (
      insert into mail_reports (send_id, seq, kind, team_id, environment, email)
      select ${send.id}, seq, kind, ${send.teamId}, ${send.environment}, case when counts then email end
      from mails where state in ${MAILED} and kind <> ${DROPPED} order by seq, kind
      on conflict do nothing
      returning seq, kind
    )${dropped}
    select m.seq, m.kind, m.counts, m.suppress_as as "suppressAs", m.email, m.email_spelling as "emailSpelling",
      case when x.seq is not null then 'recorded'
        when m.state in ${MAILED} or (m.kind = ${DROPPED} and m.reason = ${DROPPED}) then 'known'
        when m.state = 'SENDING' then 'unsettled' else 'not_mailed' end as outcome
    from mails m left join changed x on x.seq = m.seq and x.kind = m.kind`.execute(kysely(em));
  const recorded = rows.filter(({ outcome }) => outcome === "recorded");
  if (recorded.length > 0) {
    await emitReported(em, send, recorded);
    await suppressReported(em, send, recorded, policy);
  }
  return rows;
}

async function emitReported(em: EntityManager, send: ReportedSend, mails: readonly ReportedMail[]): Promise<void> {
  const resource = { type: send.resourceType, id: send.resourceId };
  for (const [event, status, some] of [
    ["email.bounced", "BOUNCED", mails.filter(({ kind }) => kind === HARD_BOUNCE || kind === "bounce:soft")],
    ["email.complained", "COMPLAINED", mails.filter(({ kind }) => kind === "complaint")],
    ["email.rejected", "REJECTED", mails.filter(({ kind }) => kind === DROPPED)],
  ] as const) {
    if (some.length === 0) continue;
    const seqs = some.map(({ seq }) => seq);
    await emit(em, send, event, {
      record: emailRecord("r", { sendId: send.id, resource }, sql`${sql.lit(status)}::text`),
      // As the report leaves the record: the ledger's row is still that of the acceptance.
      from: sql`(
        select r.seq, r.member_id, r.list_id, r.email, r.email_spelling, r.attempts, g.kind as reason, now() as updated_at
        from unnest(${seqs}::int[], ${some.map(({ kind }) => kind)}::text[]) as g (seq, kind)
        join send_recipients r on r.seq = g.seq
        where ${rowsOf(send.id, seqs)}
      ) r`,
    });
  }
}

async function suppressReported(
  em: EntityManager,
  tenant: Tenant,
  mails: readonly ReportedMail[],
  policy: SoftBouncePolicy,
): Promise<void> {
  const counting = mails.filter(({ counts }) => counts);
  const overLimit = new Set(await findOverLimit(em, tenant, counting, policy));
  const reasonOf = (mail: ReportedMail): SuppressionReason | null => {
    if (mail.kind === "complaint" || mail.kind === UNKNOWN_REPORTER) return "bounce:complaint";
    if (mail.kind === "bounce:soft") return overLimit.has(mail) ? "bounce:soft" : null;
    return mail.kind === HARD_BOUNCE ? HARD_BOUNCE : mail.suppressAs;
  };
  for (const reason of ["bounce:complaint", HARD_BOUNCE, "UNSUBSCRIBED", "bounce:soft"] as const) {
    await suppress(em, tenant, mails.filter((mail) => reasonOf(mail) === reason).map(shownAddress), reason);
  }
}

/**
 * Counts refusals for good like soft bounces, and suppresses the addresses that reach the limit. Rows of other outcomes, or
 * of another attempt, change nothing. Call it in the transaction that writes the outcomes.
 */
export async function recordSoftRefusals(
  em: EntityManager,
  { sendId, epoch, ...tenant }: Tenant & { sendId: string; epoch: number },
  seqs: readonly number[],
  policy: SoftBouncePolicy,
): Promise<void> {
  const { rows } = await sql<CountedAddress>`
    with refused as (
      select r.seq, r.email, r.email_spelling from send_recipients r
      where ${rowsOf(sendId, seqs)} and r.epoch = ${epoch} and r.state in ('REJECTED', 'EXPIRED')
    ), recorded as (
      insert into mail_reports (send_id, seq, kind, team_id, environment, email)
      select ${sendId}, seq, ${SOFT_REFUSAL}, ${tenant.teamId}, ${tenant.environment}, email from refused order by seq
      on conflict do nothing
      returning seq
    )
    select r.email, r.email_spelling as "emailSpelling" from refused r join recorded using (seq)`.execute(kysely(em));
  const overLimit = await findOverLimit(em, tenant, rows, policy);
  await suppress(em, tenant, overLimit.map(shownAddress), "bounce:soft");
}

/** Recipients have no index by address, which each send would have to write: so many of them are looked through. */
const MAX_SEARCHED = 200_000;

/**
 * The mails whose addresses have reached the limit. A mail that came through, sent between mails that bounced, starts the
 * count anew, if it was in one of the sends that are looked through: the smallest ones.
 */
async function findOverLimit<Counted extends CountedAddress>(
  em: EntityManager,
  tenant: Tenant,
  mails: readonly Counted[],
  { SOFT_BOUNCES_TO_SUPPRESS, SOFT_BOUNCE_WINDOW_DAYS }: SoftBouncePolicy,
): Promise<Counted[]> {
  if (mails.length === 0) return [];
  const emails = [...new Set(mails.map(({ email }) => email))];
  const reachesLimit = sql`count(*) >= ${SOFT_BOUNCES_TO_SUPPRESS}::int`;
  const { rows } = await sql<{ email: string }>`
    with counted as materialized (
      select p.email, coalesce((
        select r.updated_at from send_recipients r where r.send_id = p.send_id and r.seq = p.seq), p.created_at) as mailed_at
      from mail_reports p
      where ${ofTenant(tenant, "p")} and p.email is not null and p.email = any(${emails})
        and p.created_at > now() - make_interval(days => ${SOFT_BOUNCE_WINDOW_DAYS}::int)
    ), reached as materialized (
      select email, min(mailed_at) as first_at, max(mailed_at) as last_at from counted group by email having ${reachesLimit}
    ), searched as materialized (
      select s.id, sum(s.recipients) over (order by s.recipients, s.id) as rows_so_far from sends s
      where (select count(*) from reached) > 0 and ${ofTenant(tenant, "s")} and s.ledger_state in ('COMPLETE', 'NAMELESS')
        and s.send_at < (select max(last_at) from reached)
        and coalesce(s.completed_at, now()) > (select min(first_at) from reached)
    ), delivered as (
      select r.email, max(r.updated_at) as mailed_at from searched s
      cross join lateral (
        select r.email, r.updated_at from send_recipients r join reached b on b.email = r.email
        where r.send_id = s.id and r.state = 'SENT' and r.updated_at between b.first_at and b.last_at and not exists (
          select from mail_reports p where p.send_id = r.send_id and p.seq = r.seq and p.kind in (${HARD_BOUNCE}, 'bounce:soft'))
        offset 0) r
      where s.rows_so_far <= ${MAX_SEARCHED} group by r.email
    )
    select c.email from counted c join reached using (email) left join delivered d using (email)
    where d.email is null or c.mailed_at > d.mailed_at group by c.email having ${reachesLimit}`.execute(kysely(em));
  const overLimit = new Set(rows.map(({ email }) => email));
  return mails.filter(({ email }) => overLimit.has(email));
}
