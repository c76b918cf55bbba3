import { type RawBuilder, sql } from "kysely";
import { type EntityManager, forTenant, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { segmentContacts } from "../audience/segments/segments.ts";
import { hashAddress } from "../erasure/erased-addresses.ts";
import { ApiError } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { enrolmentRecord } from "../webhooks/records.ts";
import { nextStep } from "./due.ts";
import { lockRunning, OVERLAP, pauseSequence, readSequence, type Sequence, wakeSequence } from "./state.ts";

const BATCH = 10_000;

/** Of people as they are now, one event each. */
async function emitMoved(
  em: EntityManager,
  { campaignId, listId, teamId, environment }: Sequence,
  type: "sequence.entered" | "sequence.completed" | "sequence.left",
  memberIds: readonly string[],
): Promise<void> {
  if (memberIds.length === 0) return;
  const tenant = { teamId, environment };
  await emit(em, tenant, type, {
    record: enrolmentRecord("m"),
    from: sql`(
      select e.campaign_id, e.state, e.reason, e.entered_at, p.email, p.email_spelling,
        case when ${listId !== null} then e.member_id end as subscriber_id, case when ${listId === null} then e.member_id end as contact_id
      from sequence_enrolments e
      left join ${listId ? sql`subscribers` : sql`contacts`} p on p.id = e.member_id and ${ofTenant(tenant, "p")}
      where e.campaign_id = ${campaignId} and e.member_id = any(${[...memberIds]}::text[])
    ) m`,
  });
}

/**
 * Lets people of a sequence leave it, or pass a step and wait for the one that follows; those whom none follows have COMPLETED it.
 * @param moves SQL: rows `row` (ctid of an enrolment), `leaves` (the reason, or null), `passes`, `passed` (the id of the step that they
 *   have passed, or null) and `since` (when, or when they entered)
 * @param also further CTEs, beginning with a comma, which read `moves`
 * @returns the number of rows, and of those that neither leave nor pass
 */
export async function movePeople(
  em: EntityManager,
  sequence: Sequence,
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
      from moves m left join lateral (${nextStep(sql`${sequence.campaignId}::text`, sql`m.passed`, sql`m.since`)}) n on true
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
  await emitMoved(em, sequence, "sequence.left", left);
  await emitMoved(em, sequence, "sequence.completed", completed);
  return counts;
}

/**
 * Enters subscribers whose subscription the transaction has confirmed into the running sequences of their list. The caller has
 * locked the list's row, so that a start sees them as members, or they see the start.
 */
export async function enrolConfirmed(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  listId: string,
  ids: readonly string[],
): Promise<void> {
  const among = sql`c.subscriber_id = any(${[...ids]}::text[])`;
  for (const sequence of await lockRunning(em, tenant, sql`q.list_id = ${listId}`)) {
    await enrolMembers(em, vault, sequence, among, "ACTIVE");
  }
}

/** Notes contacts that the transaction has written as PRESENT in the sequences whose segment they are in. */
export async function noteWritten(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  ids: readonly string[],
): Promise<void> {
  const among = sql`c.id = any(${[...ids]}::text[])`;
  for (const sequence of await lockRunning(em, tenant, sql`q.segment_id is not null`)) {
    await enrolMembers(em, vault, sequence, among, "PRESENT");
  }
}

/** Lets no person enter by the new address of one who has entered by another: its row has no member. */
export async function keepFromEntering(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  { id, email }: { id: string; email: string },
): Promise<void> {
  const hash = hashAddress(vault, tenant, email);
  await sql`
    insert into sequence_enrolments (campaign_id, address_hash, member_id, state, reason)
    select q.campaign_id, ${hash}, ${hash}, 'LEFT', 'address_changed'
    from sequences q join sequence_enrolments e on e.campaign_id = q.campaign_id and e.member_id = ${id}
    where ${ofTenant(tenant, "q")} order by q.campaign_id on conflict do nothing`.execute(kysely(em));
}

/** Contacts that a campaign would mail. */
const mayBeMailed = (tenant: Tenant) => sql`c.email_status = 'ACTIVE' and not exists (
  select from suppressions x where ${ofTenant(tenant, "x")} and x.email = c.email)`;

/**
 * Enrols the members of now in a running sequence, in batches, each in a transaction unless the caller is in one. A segment that was
 * deleted, or cannot be evaluated, pauses its sequence.
 * @param among on a subscription or contact `c`
 * @param doneAt column of the sequence that is set, when all are enrolled, to the time before the members were read
 */
async function enrolMembers(
  em: EntityManager,
  vault: Vault,
  sequence: Sequence,
  among: RawBuilder<unknown>,
  state: "ACTIVE" | "PRESENT",
  doneAt?: "members_noted_at" | "swept_at",
): Promise<void> {
  const { campaignId, listId, segmentId, teamId, environment } = sequence;
  const tenant = { teamId, environment };
  const { rows: times } = await sql<{ now: string }>`select now()`.execute(kysely(em));
  let members = sql`select p.id, p.email from subscriptions c join subscribers p on p.id = c.subscriber_id and ${ofTenant(tenant, "p")}
    where c.list_id = ${listId} and ${ofTenant(tenant, "c")} and c.status = 'CONFIRMED' and ${among}`;
  try {
    if (segmentId !== null) members = await segmentContacts(forTenant(em, tenant), tenant, segmentId, among);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    await pauseSequence(em, campaignId, error.code);
    return;
  }
  const first = nextStep(sql`${campaignId}::text`, sql`null`, sql`now()`);
  for (let after: string | undefined = ""; after !== undefined; ) {
    const { rows: batch } = await sql<{ id: string; email: string }>`
      select m.id, m.email from (${members}) m
      where m.id > ${after} and not exists (
        select from sequence_enrolments e where e.campaign_id = ${campaignId} and e.member_id = m.id)
      order by m.id limit ${sql.lit(BATCH)}`.execute(kysely(em));
    const hashes = batch.map(({ email }) => hashAddress(vault, tenant, email));
    const isRunning = await transaction(em, async (tx) => {
      if ((await lockRunning(tx, tenant, sql`q.campaign_id = ${campaignId}`)).length === 0) return false;
      const { rows } = await sql<{ id: string }>`
        insert into sequence_enrolments (campaign_id, address_hash, member_id, state, step_id, due_at)
        select ${campaignId}, g.hash, g.id, ${state}, n.step_id, n.due_at
        from unnest(${batch.map(({ id }) => id)}::text[], ${hashes}::text[]) g (id, hash) left join lateral (${first}) n on ${state === "ACTIVE"}
        order by g.hash on conflict do nothing returning member_id as id`.execute(kysely(tx));
      if (state === "ACTIVE" && rows.length > 0) {
        const ids = rows.map(({ id }) => id);
        await emitMoved(tx, sequence, "sequence.entered", ids);
        await wakeSequence(tx, campaignId);
      }
      return true;
    });
    after = isRunning ? batch[BATCH - 1]?.id : undefined;
  }
  if (doneAt === undefined) return;
  await sql`update sequences set ${sql.ref(doneAt)} = ${times[0]?.now}
    where campaign_id = ${campaignId} and ${ofTenant(tenant)}`.execute(kysely(em));
}

/** Notes those who were members at the start, or enters them where that was asked for. A repetition continues. */
export async function noteMembers(em: EntityManager, vault: Vault, campaignId: string): Promise<void> {
  const sequence = await readSequence(em, campaignId);
  const { includeMembers, segmentId, startedAt } = sequence;
  if (sequence.areMembersNoted || startedAt === null) return;
  // Those who came later enter by themselves, or were imported.
  const wereThere =
    segmentId === null ? sql`coalesce(c.confirmed_at <= ${startedAt}, true)` : sql`c.created_at <= ${startedAt}`;
  const entering = includeMembers && segmentId !== null ? sql`${wereThere} and ${mayBeMailed(sequence)}` : wereThere;
  await enrolMembers(em, vault, sequence, entering, includeMembers ? "ACTIVE" : "PRESENT", "members_noted_at");
}

/**
 * Enters the contacts of a segment's running sequence that have come to match it, once its members are noted.
 * @param all also looks at contacts that were not changed: lists, events and days have other reasons to match
 */
export async function sweepSegment(em: EntityManager, vault: Vault, campaignId: string, all: boolean): Promise<void> {
  const sequence = await readSequence(em, campaignId);
  if (sequence.segmentId === null || !sequence.areMembersNoted) return;
  const mayEnter = mayBeMailed(sequence);
  const since = sql`${sequence.sweptAt ?? sequence.startedAt}::timestamptz - ${OVERLAP}`;
  const among = all ? mayEnter : sql`${mayEnter} and c.updated_at >= ${since}`;
  await enrolMembers(em, vault, sequence, among, "ACTIVE", "swept_at");
}
