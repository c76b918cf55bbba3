import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { limitStatements } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { selectIneligible } from "../sends/drafts/members.ts";
import { PAUSE_REASONS } from "../sends/pause-reasons.ts";
import { takeFromCap } from "../sends/plan/confirm.ts";
import { assertFewComplaints, readSendCap } from "../sends/plan/gates.ts";
import { Refusal } from "../sends/refusal.ts";
import { lockBalance, moveCredits } from "../teams/credits.ts";
import { movePeople } from "./enrolments.ts";
import { readSender } from "./sequences.ts";
import { endWaiting, isDue, isWaiting, moveSequence, pauseSequence, readSequence, type Sequence } from "./state.ts";
import { peopleWho } from "./steps.ts";

/** People whom one wave mails at most. */
const WAVE_PEOPLE = 50_000;
const CLAIM_LIMIT_MS = 300_000;

interface Claimed {
  /** Of the wave. */
  sendId?: string;
  /** An open wave has people who are not mailed yet, or is blocked: an operator has stopped its send. */
  isBusy?: boolean;
  isBlocked?: boolean;
  /** Until the daily cap of the key begins anew. */
  capMs?: number;
}

/**
 * Claims the people who are due for one version of a step as the next wave: its send with ledger, credits and cap, all or nothing.
 * A refusal of a gate pauses the sequence. @param knownWave of Temporal: a smaller one in Postgres pauses it too
 */
export function claimWave(em: EntityManager, campaignId: string, knownWave: number): Promise<Claimed> {
  return transaction(em, async (tx) => {
    await limitStatements(tx, CLAIM_LIMIT_MS);
    const sequence = await readSequence(tx, campaignId, { lock: "claim" });
    if (sequence.wave < knownWave) {
      await sql`update sequences set wave = ${knownWave} where campaign_id = ${campaignId} and ${ofTenant(sequence)}`.execute(
        kysely(tx),
      );
      if (sequence.status === "ACTIVE" || sequence.status === "PAUSED") {
        await moveSequence(tx, sequence, "PAUSED", PAUSE_REASONS.databaseRestored);
      }
      return {};
    }
    const { isBusy, isBlocked } = await readOpenWaves(tx, sequence);
    if (isBusy || isBlocked) return { isBusy: true, isBlocked };
    if (sequence.status !== "ACTIVE" || !sequence.areMembersNoted || !sequence.mayClaim) return {};
    const step = await readDueStep(tx, campaignId);
    if (!step) return {};
    try {
      return await claimStep(tx, sequence, step);
    } catch (error) {
      if (!(error instanceof ApiError)) throw error;
      const reason = error instanceof Refusal && error.reason !== "complaints" ? error.reason : error.code;
      await pauseSequence(tx, campaignId, reason);
      return {};
    }
  });
}

/** DEFERRED people alone do not make a wave busy. */
async function readOpenWaves(em: EntityManager, { openWaves, ...tenant }: Sequence) {
  const { rows } = await sql<{ isBusy: boolean; isBlocked: boolean }>`
    select coalesce(bool_or(s.status in ('PAUSED', 'CANCELLED')), false) as "isBlocked",
      coalesce(bool_or(s.status = 'SCHEDULED' or s.recipients + coalesce((
        select sum(k.count) filter (where k.state in ('QUEUED', 'SENDING')) from send_counts k where k.send_id = s.id), 0) > 0), false) as "isBusy"
    from sends s where s.id = any(${openWaves}::text[]) and ${ofTenant(tenant, "s")}`.execute(kysely(em));
  return { isBusy: false, isBlocked: false, ...rows[0] };
}

interface DueStep {
  stepId: string;
  versionId: string;
  stopIf: unknown;
  skipIf: unknown;
}

/** The step for which someone has been due for the longest time. */
async function readDueStep(em: EntityManager, campaignId: string): Promise<DueStep | undefined> {
  const { rows } = await sql<DueStep>`
    select v.step_id as "stepId", v.id as "versionId", v.stop_if as "stopIf", v.skip_if as "skipIf"
    from (select step_id from sequence_enrolments e where ${isDue(campaignId)}
      order by due_at limit 1) d
    join sequence_steps s on s.campaign_id = ${campaignId} and s.step_id = d.step_id
    join sequence_step_versions v on v.id = s.version_id`.execute(kysely(em));
  return rows[0];
}

/** @throws {ApiError} as the gates of a send, before anything is written */
async function claimStep(em: EntityManager, sequence: Sequence, step: DueStep): Promise<Claimed> {
  const { campaignId, teamId, environment } = sequence;
  const tenant: Tenant = { teamId, environment };
  const { key, account } = await readSender(em, sequence, sequence.apiKeyId ?? "");
  await assertFewComplaints(em, tenant);
  const credits = Number((await lockBalance(em, tenant))?.available ?? 0);
  if (credits === 0) throw new Refusal("quota_exceeded", "credits");
  const cap = await readSendCap(em, key);
  // Locks the use of the day: a refusal after the ledger is written would leave its people in a wave without a send.
  const { remaining } = cap.remaining === 0 ? cap : await takeFromCap(em, key, 0);
  if (remaining === 0) return { capMs: cap.secondsToReset * 1_000 };

  const sendId = newId("send");
  const limit = Math.min(WAVE_PEOPLE, credits, remaining);
  const recipients = await moveDue(em, sequence, step, sendId, limit);
  if (recipients === 0) return {};
  await moveCredits(em, tenant, { kind: "RESERVE", amount: recipients, sendId, cause: "confirm" });
  await takeFromCap(em, key, recipients);
  await sql`
    with sent as (
      insert into sends (id, team_id, environment, resource_type, resource_id, step_version_id, list_id, api_key_id, status,
        recipients, tracking, send_at)
      values (${sendId}, ${teamId}, ${environment}, 'campaign', ${campaignId}, ${step.versionId}, ${sequence.listId}, ${key.id},
        'SCHEDULED', ${recipients}, ${sequence.tracking}, now())
    ), lane as (insert into send_lanes (send_id, account_id) values (${sendId}, ${account.id}))
    update sequences set wave = wave + 1, open_waves = open_waves || ${sendId}::text, claimed_at = now()
    where campaign_id = ${campaignId} and ${ofTenant(tenant)}`.execute(kysely(em));
  return { sendId };
}

/** SQL, as CTEs that end with `members`: the facts of a ledger's row, and `ineligible`: why they may not be mailed, or null. */
function membersOf({ campaignId, listId, teamId, environment }: Sequence, which: RawBuilder<unknown>) {
  const contact = sql`from contacts k where ${ofTenant({ teamId, environment }, "k")} and k.email = m.email`;
  const [table, fields, rules] = listId
    ? ([sql`subscribers`, sql`(select nullif(k.fields, '{}') ${contact})`, "list_sequence"] as const)
    : ([sql`contacts`, sql`nullif(m.fields, '{}')`, "campaign"] as const);
  return sql`
      with picked as materialized (
        select e.ctid as row, e.member_id, m.email, m.email_spelling, m.first_name, m.last_name, ${fields} as fields,
          ${listId}::text as list_id, ${teamId}::text as team_id, ${environment}::text as environment, ${campaignId}::text as resource_id
        from sequence_enrolments e left join ${table} m on m.id = e.member_id and ${ofTenant({ teamId, environment }, "m")}
        where ${which}
      ), members as materialized (${selectIneligible[rules](sql`p.*`)}
      )`;
}

/**
 * Puts people who are due into the ledger of the wave. Ineligible ones, and those of `stop_if`, leave; those of `skip_if` pass.
 * @returns how many are in the ledger @throws {ApiError} `filter_unsupported`, before anything is written
 */
async function moveDue(
  em: EntityManager,
  sequence: Sequence,
  { stepId, stopIf, skipIf }: DueStep,
  sendId: string,
  limit: number,
): Promise<number> {
  const among = { ids: sql`select member_id from members`, emails: sql`select email from members` };
  const stop = await peopleWho(em, sequence, among, stopIf);
  const skip = await peopleWho(em, sequence, among, skipIf);
  const due = sql`${isDue(sequence.campaignId)} and e.step_id = ${stepId} order by e.due_at limit ${limit}`;
  const moves = sql`${membersOf(sequence, due)}
      select m.*, coalesce(m.ineligible, case when stop.id is not null then 'stop_if' end) as leaves,
        skip.id is not null as passes, ${stepId}::text as passed, now() as since
      from members m left join (${stop}) stop on stop.id = m.member_id left join (${skip}) skip on skip.id = m.member_id`;
  const intoWave = sql`, chosen as materialized (
      select m.*, (row_number() over ())::int as seq from moves m where m.leaves is null and not m.passes
    ), held as (
      update sequence_enrolments e set send_id = ${sendId}, seq = c.seq, fell_due_at = null from chosen c where e.ctid = c.row
    ), copied as (
      insert into send_recipients (send_id, seq, member_id, email, email_spelling, first_name, last_name, list_id, fields)
      select ${sendId}::text, seq, member_id, email, email_spelling, first_name, last_name, list_id, fields from chosen
    )`;
  return (await movePeople(em, sequence, moves, intoWave)).stayed;
}

/**
 * Lets the people of open waves whose mail has its outcome go on: SENT, UNKNOWN, EXPIRED and a refusal that is no bounce pass the
 * step; those whom the wave could not mail, and hard bounces, leave. Those of a cancelled wave wait anew for what follows the
 * step that they have passed, and the sequence is paused. Of one that has ended no person waits.
 */
export function advanceWaves(em: EntityManager, campaignId: string): Promise<void> {
  return transaction(em, async (tx) => {
    await limitStatements(tx, CLAIM_LIMIT_MS);
    const sequence = await readSequence(tx, campaignId, { lock: "claim" });
    const { openWaves, status, ...tenant } = sequence;
    if (openWaves.length === 0) return;
    const isCancelled = sql`r.state = 'CANCELLED'`;
    const outcomes = sql`
      select e.ctid as row, case r.state when 'SUPPRESSED' then r.reason
          when 'REJECTED' then (select 'bounced' from suppressions x where ${ofTenant(tenant, "x")} and x.email = r.email) end as leaves,
        true as passes, case when ${isCancelled} then e.passed_step_id else v.step_id end as passed,
        case when ${isCancelled} then coalesce(e.passed_at, e.entered_at) else r.updated_at end as since
      from sequence_enrolments e join send_recipients r on r.send_id = e.send_id and r.seq = e.seq
      join sends s on s.id = r.send_id and ${ofTenant(tenant, "s")} join sequence_step_versions v on v.id = s.step_version_id
      where e.send_id = any(${openWaves}::text[]) and r.state not in ('QUEUED', 'SENDING', 'DEFERRED')`;
    const { people } = await movePeople(tx, sequence, outcomes);
    if (people === 0) return;
    const { rows } = await sql<{ cancelled: boolean }>`
      update sequences set open_waves = array(
        select w.id from unnest(open_waves) with ordinality as w (id, n)
        where exists (select from sequence_enrolments e where e.send_id = w.id) order by n)
      where campaign_id = ${campaignId} and ${ofTenant(tenant)} returning exists (
        select from sends s where s.id = any(${openWaves}::text[]) and s.status = 'CANCELLED' and ${ofTenant(tenant, "s")}) as cancelled`.execute(
      kysely(tx),
    );
    if (rows[0]?.cancelled && status === "ACTIVE") await pauseSequence(tx, campaignId, "wave_cancelled");
    if (status === "STOPPED") await endWaiting(tx, campaignId);
  });
}

/** The last part of a sweep of all: people who wait and have become ineligible leave. */
export function leaveIneligible(em: EntityManager, campaignId: string): Promise<void> {
  return transaction(em, async (tx) => {
    const sequence = await readSequence(tx, campaignId, { lock: "claim" });
    const moves = sql`${membersOf(sequence, isWaiting(campaignId))}
      select m.row, m.ineligible as leaves, false as passes, null as passed, null::timestamptz as since
      from members m where m.ineligible is not null`;
    await movePeople(tx, sequence, moves);
    await sql`update sequences set swept_all_at = now() where campaign_id = ${campaignId} and ${ofTenant(sequence)}`.execute(
      kysely(tx),
    );
  });
}
