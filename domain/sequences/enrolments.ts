import { type RawBuilder, sql } from "kysely";
import type { EnrolmentState } from "../../db/entities/sequence.ts";
import { type EntityManager, forTenant, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { segmentContacts } from "../audience/segments/segments.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import type { EventName } from "../webhooks/catalogue.ts";
import { emit } from "../webhooks/emit.ts";
import { enrolmentRecord } from "../webhooks/records.ts";
import { nextStep } from "./due.ts";
import { lockRunning, OVERLAP, pauseSequence, readSequence, type Sequence, wakeSequence } from "./state.ts";

/** A subscriber or contact, with the address as addresses are compared. */
export interface Member {
  id: string;
  email: string;
}

type Entering = Extract<EnrolmentState, "ACTIVE" | "PRESENT">;
type Moved = Extract<EventName, `sequence.${string}`>;

const BATCH = 10_000;

/**
 * Enrols members of a running sequence that `lockRunning` has locked; those who were enrolled before are left out.
 * @returns how many are new
 */
export async function enrol(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  campaignId: string,
  members: readonly Member[],
  state: Entering,
): Promise<number> {
  if (members.length === 0) return 0;
  const first =
    state === "ACTIVE"
      ? nextStep(sql`${campaignId}::text`, sql`null`, sql`now()`)
      : sql`select null as step_id, null::timestamptz as due_at`;
  const { rows } = await sql<{ id: string }>`
    insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at)
    select ${campaignId}, g.hash, g.id, ${state}, n.step_id, n.due_at
    from unnest(${members.map(({ id }) => id)}::text[],
      ${members.map(({ email }) => hashAddress(vault, tenant, email))}::text[]) g (id, hash)
    left join lateral (${first}) n on true
    order by g.hash on conflict do nothing returning member_id as id`.execute(kysely(em));
  if (state === "ACTIVE" && rows.length > 0) {
    await emitMoved(
      em,
      tenant,
      campaignId,
      "sequence.entered",
      rows.map(({ id }) => id),
    );
    await wakeSequence(em, campaignId);
  }
  return rows.length;
}

/** As they are now, one event each. */
async function emitMoved(
  em: EntityManager,
  tenant: Tenant,
  campaignId: string,
  type: Moved,
  memberIds: readonly string[],
): Promise<void> {
  if (memberIds.length === 0) return;
  await emit(em, tenant, type, {
    record: enrolmentRecord("m"),
    from: sql`(
      select e.campaign_id, e.state, e.reason, e.entered_at, coalesce(s.email, c.email) as email,
        coalesce(s.email_spelling, c.email_spelling) as email_spelling,
        case when q.list_id is not null then e.member_id end as subscriber_id,
        case when q.list_id is null then e.member_id end as contact_id
      from sequences q join sequence_enrolments e on e.campaign_id = q.campaign_id
      left join subscribers s on s.id = e.member_id and ${ofTenant(tenant, "s")}
      left join contacts c on c.id = e.member_id and ${ofTenant(tenant, "c")}
      where q.campaign_id = ${campaignId} and ${ofTenant(tenant, "q")} and e.member_id = any(${[...memberIds]}::text[])
    ) m`,
  });
}

/**
 * Lets people of a sequence leave it, or pass a step and wait for the one that follows; those whom none follows have COMPLETED it.
 * @param moves SQL: rows `row` (ctid of an enrolment), `leaves` (the reason, or null), `passes`, `passed` (the id of the step that they
 *   have passed, or null) and `since` (when, or when they entered)
 * @param also further CTEs, beginning with a comma, which read `moves`
 * @returns the number of rows, and how many of them neither leave nor pass: these are as they were
 */
export async function movePeople(
  em: EntityManager,
  { campaignId, teamId, environment }: Sequence,
  moves: RawBuilder<unknown>,
  also: RawBuilder<unknown> = sql``,
): Promise<{ people: number; stayed: number }> {
  const { rows } = await sql<{ left: string[]; completed: string[]; people: number; stayed: number }>`
    with moves as materialized (${moves}
    ), gone as (
      update sequence_enrolments e set state = 'LEFT', reason = m.leaves, due_at = null, fell_due_at = null, send_id = null, seq = null
      from moves m where e.ctid = m.row and m.leaves is not null returning e.member_id
    ), passed as (
      update sequence_enrolments e set state = case when n.step_id is null then 'COMPLETED' else 'ACTIVE' end,
        passed_step_id = m.passed, passed_at = case when m.passed is not null then m.since end,
        step_id = n.step_id, due_at = n.due_at, fell_due_at = null, send_id = null, seq = null
      from moves m left join lateral (${nextStep(sql`${campaignId}::text`, sql`m.passed`, sql`m.since`)}) n on true
      where e.ctid = m.row and m.leaves is null and m.passes
        and (e.send_id is not null or e.passed_step_id is distinct from m.passed or e.step_id is distinct from n.step_id
          or coalesce(e.fell_due_at, e.due_at) is distinct from n.due_at)
      returning e.member_id, e.state
    ) ${also}
    select array(select member_id from gone) as left, array(select member_id from passed where state = 'COMPLETED') as completed,
      count(*)::int as people, (count(*) filter (where leaves is null and not passes))::int as stayed from moves`.execute(
    kysely(em),
  );
  const [{ left, completed, ...counts } = { left: [], completed: [], people: 0, stayed: 0 }] = rows;
  await emitMoved(em, { teamId, environment }, campaignId, "sequence.left", left);
  await emitMoved(em, { teamId, environment }, campaignId, "sequence.completed", completed);
  return counts;
}

/**
 * Enters subscribers whose subscription has just become CONFIRMED into the running sequences of their list. The caller has
 * locked the list's row, so that a start sees them as members, or they see the start.
 */
export async function enrolConfirmed(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  listId: string,
  subscribers: readonly Member[],
): Promise<void> {
  if (subscribers.length === 0) return;
  for (const id of await lockRunning(em, tenant, sql`q.list_id = ${listId}`)) {
    await enrol(em, vault, tenant, id, subscribers, "ACTIVE");
  }
}

/** Notes the contacts that the transaction has written as PRESENT in the sequences whose segment they are in. */
export async function noteWritten(em: EntityManager, vault: Vault, tenant: Tenant): Promise<void> {
  for (const id of await lockRunning(em, tenant, sql`q.segment_id is not null`)) {
    await enrolMembers(em, vault, await readSequence(em, id), sql`c.updated_at = now()::timestamptz(3)`, "PRESENT");
  }
}

/** Contacts that a campaign would mail. */
const mayBeMailed = (tenant: Tenant) => sql`c.email_status = 'ACTIVE' and not exists (
  select from suppressions x where ${ofTenant(tenant, "x")} and x.email = c.email)`;

/**
 * Enrols the members of now, in batches, each in a transaction unless the caller is in one. A segment that was deleted, or
 * cannot be evaluated, pauses its sequence.
 * @param among on a subscription or contact `c` @returns how many are new; undefined when the members are not known
 */
async function enrolMembers(
  em: EntityManager,
  vault: Vault,
  sequence: Sequence,
  among: RawBuilder<unknown>,
  state: Entering,
): Promise<number | undefined> {
  const { campaignId, listId, segmentId, teamId, environment } = sequence;
  const tenant: Tenant = { teamId, environment };
  let members = sql`select p.id, p.email from subscriptions c join subscribers p on p.id = c.subscriber_id and ${ofTenant(tenant, "p")}
    where c.list_id = ${listId} and ${ofTenant(tenant, "c")} and c.status = 'CONFIRMED' and ${among}`;
  try {
    if (segmentId !== null) members = await segmentContacts(forTenant(em, tenant), tenant, segmentId, among);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    await pauseSequence(em, campaignId, error.code);
    return undefined;
  }
  let enrolled = 0;
  for (let after: string | undefined = ""; after !== undefined; ) {
    const { rows } = await sql<Member>`
      select m.id, m.email from (${members}) m
      where m.id > ${after} and not exists (
        select from sequence_enrolments e where e.campaign_id = ${campaignId} and e.member_id = m.id)
      order by m.id limit ${sql.lit(BATCH)}`.execute(kysely(em));
    const isRunning = await transaction(em, async (tx) => {
      if ((await lockRunning(tx, tenant, sql`q.campaign_id = ${campaignId}`)).length === 0) return false;
      enrolled += await enrol(tx, vault, tenant, campaignId, rows, state);
      return true;
    });
    after = isRunning ? rows[BATCH - 1]?.id : undefined;
  }
  return enrolled;
}

/** Notes those who were members at the start, or enters them where that was asked for. A repetition continues. */
export async function noteMembers(em: EntityManager, vault: Vault, campaignId: string): Promise<void> {
  const sequence = await readSequence(em, campaignId);
  if (sequence.areMembersNoted || sequence.status === "DRAFT") return;
  const { includeMembers, segmentId } = sequence;
  const startedAt = sql`(select q.started_at from sequences q where q.campaign_id = ${campaignId} and ${ofTenant(sequence, "q")})`;
  // Those who came later enter by themselves, or were imported.
  const wereThere =
    segmentId === null ? sql`coalesce(c.confirmed_at <= ${startedAt}, true)` : sql`c.created_at <= ${startedAt}`;
  const entering = includeMembers && segmentId !== null ? sql`${wereThere} and ${mayBeMailed(sequence)}` : wereThere;
  const state = includeMembers ? "ACTIVE" : "PRESENT";
  if ((await enrolMembers(em, vault, sequence, entering, state)) === undefined) return;
  await sql`update sequences set members_noted_at = now() where campaign_id = ${campaignId} and ${ofTenant(sequence)}`.execute(
    kysely(em),
  );
}

/**
 * Enters the contacts of a segment's running sequence that have come to match it, once its members are noted.
 * @param options `all` also looks at contacts that were not changed: lists, events and days have other reasons to match
 * @returns how many entered
 */
export async function sweepSegment(
  em: EntityManager,
  vault: Vault,
  campaignId: string,
  { all }: { all: boolean },
): Promise<number> {
  const sequence = await readSequence(em, campaignId);
  if (sequence.segmentId === null || !sequence.areMembersNoted) return 0;
  const { rows } = await sql<{ now: string; since: string }>`
    select now(), coalesce(swept_at, started_at) - ${OVERLAP} as since
    from sequences q where campaign_id = ${campaignId} and ${ofTenant(sequence, "q")}`.execute(kysely(em));
  const [{ now, since } = { now: "", since: "" }] = rows;
  const mayEnter = mayBeMailed(sequence);
  const among = all ? mayEnter : sql`${mayEnter} and c.updated_at >= ${since}::timestamptz`;
  const entered = await enrolMembers(em, vault, sequence, among, "ACTIVE");
  if (entered === undefined) return 0;
  await sql`update sequences set swept_at = ${now} where campaign_id = ${campaignId} and ${ofTenant(sequence)}`.execute(
    kysely(em),
  );
  return entered;
}
