import { LockMode } from "@mikro-orm/postgresql";
import { sql } from "kysely";
import { List } from "../../db/entities/audience.ts";
import { Segment } from "../../db/entities/contact.ts";
import { type EntityManager, forTenant, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { readAccess } from "../access/key-lookup.ts";
import { lockKey } from "../access/keys.ts";
import { segmentContacts } from "../audience/segments/segments.ts";
import { moveToBin } from "../bin/bin.ts";
import { ApiError, notFound } from "../errors.ts";
import { resumeRefusal } from "../sends/client-commands.ts";
import { pickAccount } from "../sends/drafts/draft.ts";
import { createDraft } from "../sends/drafts/drafts.ts";
import { PAUSE_REASONS } from "../sends/pause-reasons.ts";
import { assertKeyMaySend, assertSender } from "../sends/plan/gates.ts";
import { movePeople } from "./enrolments.ts";
import { readWaves } from "./progress.ts";
import {
  endWaiting,
  isDue,
  isWaiting,
  moveSequence,
  readSequence,
  type Sequence,
  wakeSequence,
  wrongState,
} from "./state.ts";

interface NewSequence {
  name: string;
  /** One of the two. */
  listId?: string | null | undefined;
  segmentId?: string | null | undefined;
  /** Normalised. */
  fromEmail: string;
  fromName?: string | null;
  /** As `changeTracking`. */
  ownTracking?: boolean | null;
}

/**
 * Makes a sequence as a DRAFT, in the caller's transaction. @returns its id, which is that of its campaign
 * @param tenant the LIVE one: the test environment sends no mail @param limit campaigns that the team may have
 * @throws {ApiError} `validation_failed` without one of the two; `not_found` for the list or segment; `resource_limit_reached`;
 *   as `readAccount`
 */
export async function createSequence(
  em: EntityManager,
  tenant: Tenant,
  { name, listId = null, segmentId = null, fromEmail, fromName = null, ownTracking = null }: NewSequence,
  limit: number,
): Promise<string> {
  if ((listId === null) === (segmentId === null)) {
    throw new ApiError("validation_failed", "A sequence sends to a list or a segment: name one of the two.");
  }
  await lockTarget(em, { listId, segmentId }, "");
  await readAccount(em, tenant, fromEmail);
  const content = { name, subject: null, fromName, body: null, isDrip: true, tracking: ownTracking };
  const { id } = await createDraft(em, tenant, "campaign", content, limit);
  await sql`
    insert into sequences (campaign_id, team_id, environment, list_id, segment_id, from_email)
    values (${id}, ${tenant.teamId}, ${tenant.environment}, ${listId}, ${segmentId}, ${fromEmail})`.execute(kysely(em));
  return id;
}

/** Keeps the list or segment until the transaction ends. @throws {ApiError} `not_found` for one that is gone, with the remedy */
async function lockTarget(
  em: EntityManager,
  { listId, segmentId }: Pick<Sequence, "listId" | "segmentId">,
  remedy: string,
): Promise<void> {
  const found = listId
    ? await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_WRITE })
    : await em.findOne(Segment, { id: segmentId ?? "", deletedAt: null }, { lockMode: LockMode.PESSIMISTIC_READ });
  if (found) return;
  throw new ApiError("not_found", `The team has no ${listId ? `list ${listId}` : `segment ${segmentId}`}${remedy}.`);
}

/** @throws {ApiError} `sending_domain_unverified` without an account that may send from the address */
async function readAccount(em: EntityManager, tenant: Tenant, fromEmail: string) {
  const account = await pickAccount(em, tenant, fromEmail);
  if (account !== null) return account;
  throw new ApiError(
    "sending_domain_unverified",
    `The team has no sending account with the address ${fromEmail}, or allowed for its domain; connect one in the app.`,
  );
}

/**
 * The key and the account that mail a sequence, if they may; they may until the transaction ends.
 * @throws {ApiError} as `readAccess`; `send_not_permitted`, `sending_domain_unverified`, `send_domain_not_allowed`
 */
export async function readSender(em: EntityManager, sequence: Sequence, apiKeyId: string) {
  const { listId, fromEmail } = sequence;
  const scope = listId === null ? "campaigns:send" : "newsletters:send";
  const { caller: key } = await readAccess(em, sequence, apiKeyId, scope, { lock: true });
  assertKeyMaySend(key);
  const account = await readAccount(em, sequence, fromEmail);
  assertSender({ accounts: [account], isAccountGone: false, fromAddresses: [fromEmail] }, key);
  return { key, account };
}

/**
 * Starts a DRAFT, in the caller's transaction: those who become members after its commit enter. Those who are members now enter, or
 * are noted as PRESENT. @param key its id or visible part
 * @throws {ApiError} `not_found`, also for a list or segment that was deleted; `resource_state_invalid` unless it is a DRAFT
 *   with steps; `filter_unsupported`; as `readSender`
 */
export async function startSequence(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  { key: name, includeMembers }: { key: string; includeMembers: boolean },
): Promise<void> {
  const target = await readSequence(em, id, { tenant });
  await lockTarget(em, target, " any more: make a sequence of another one");
  if (target.segmentId !== null) await segmentContacts(em, tenant, target.segmentId);
  const sequence = await readSequence(em, id, { lock: "entering" });
  if (sequence.status !== "DRAFT") throw wrongState(sequence);
  const { key } = await readSender(em, sequence, (await lockKey(em, { ...tenant, key: name })).id);
  const { numAffectedRows: started } = await sql`
    update sequences set api_key_id = ${key.id}, include_members = ${includeMembers}, started_at = clock_timestamp()
    where campaign_id = ${id} and ${ofTenant(tenant)}
      and exists (select from sequence_steps where campaign_id = ${id} and removed_at is null)`.execute(kysely(em));
  if (!started) throw new ApiError("resource_state_invalid", "It has no steps; give it some with sequence:steps.");
  await moveSequence(em, sequence, "ACTIVE", null);
}

/** Of the people who fell due during a pause, so many are mailed at once, and the others within the time. */
const AT_ONCE = 1_000;
const SPREAD_OVER = sql`interval '1 hour'`;

type Resumption = { due?: "mail" | "skip" | undefined; key?: string | undefined; isByClient?: boolean };

/**
 * Continues a PAUSED sequence.
 * @param options `due`: whether those who were due when it was paused are mailed, perhaps again, or pass their step unmailed. `key`:
 *   the id or visible part of one in place of that which it was started with. `isByClient`: by a member, and not by an operator
 * @returns people who passed their step unmailed; people who are due, and how many of them are mailed within the hour and not at once
 * @throws {ApiError} `not_found`, also for a list or segment that was deleted; `resource_state_invalid` unless it is PAUSED, and after
 *   a restore without `due` while people had been due; as `readSender`; by a client also as `resumeRefusal`
 */
export function resumeSequence(
  em: EntityManager,
  id: string,
  { due: treatment, key: name, isByClient = false }: Resumption = {},
): Promise<Record<"skipped" | "due" | "spread", number>> {
  return transaction(em, async (tx) => {
    // An operator's command has more time by itself.
    if (isByClient) await limitStatements(tx, PATIENT_MS);
    const found = await readSequence(tx, id);
    if (found.status !== "PAUSED") {
      const waves = found.status === "ACTIVE" ? await readWaves(tx, found) : [];
      const held = waves.find(({ status }) => status === "PAUSED");
      throw wrongState(found, held && `its wave ${held.id} is PAUSED: send:resume ${held.id}`);
    }
    // Before the sequence: the deletion of a list locks them in this order.
    await lockTarget(forTenant(tx, found), found, " any more: sequence:stop ends it");
    const sequence = await readSequence(tx, id, { lock: "claim" });
    if (sequence.status !== "PAUSED") throw wrongState(sequence);
    const refusal = isByClient ? resumeRefusal(sequence.reason) : undefined;
    if (refusal) throw refusal;
    const { teamId, environment, apiKeyId } = sequence;
    const keyId = name === undefined ? apiKeyId : (await lockKey(tx, { teamId, environment, key: name })).id;
    const { key } = await readSender(tx, sequence, keyId ?? "");
    const wereDue = sql`${isDue(id)} and e.due_at <= (
      select c.updated_at from campaigns c where c.id = ${id} and ${ofTenant(sequence, "c")})`;
    const { rows: counted } = await sql<{ people: number }>`
      select count(*)::int as people from sequence_enrolments e where ${wereDue}`.execute(kysely(tx));
    const people = counted[0]?.people ?? 0;
    if (sequence.reason === PAUSE_REASONS.databaseRestored && treatment === undefined && people > 0) {
      throw new ApiError(
        "resource_state_invalid",
        `The database was restored, and ${people} people who were due may have had their mail: resume with --mail-due, and some of them get it twice, or with --skip-due, and some of them never get it.`,
      );
    }
    // As if they had got it on time: a step that follows it soon was due, too.
    const skip = sql`select e.ctid as row, null as leaves, true as passes, e.step_id as passed, e.due_at as since
      from sequence_enrolments e where ${wereDue}`;
    const skipped = treatment === "skip" ? people : 0;
    for (let left = skipped; left > 0; ) left = (await movePeople(tx, sequence, skip)).people;
    const { rows: spreading } = await sql<{ due: number; spread: number }>`
      with due as (
        select e.address_hash, row_number() over (order by e.due_at, e.address_hash) as n, count(*) over () as people
        from sequence_enrolments e where ${isDue(id)}
      ), spread as (
        update sequence_enrolments e set fell_due_at = coalesce(e.fell_due_at, e.due_at),
          due_at = now() + ${SPREAD_OVER} * ((d.n - ${AT_ONCE})::float8 / (d.people - ${AT_ONCE}))
        from due d where e.campaign_id = ${id} and e.address_hash = d.address_hash and d.n > ${AT_ONCE} returning 1
      ) select (select count(*)::int from due) as due, (select count(*)::int from spread) as spread`.execute(
      kysely(tx),
    );
    await sql`update sequences set api_key_id = ${key.id} where campaign_id = ${id} and ${ofTenant(sequence)}`.execute(
      kysely(tx),
    );
    await moveSequence(tx, sequence, "ACTIVE", null);
    return { skipped, due: 0, spread: 0, ...spreading[0] };
  });
}

/** Mails at once those whom a resume has spread over the hour. @returns how many @throws {ApiError} unless it is ACTIVE */
export function mailDueNow(em: EntityManager, id: string): Promise<number> {
  return transaction(em, async (tx) => {
    const sequence = await readSequence(tx, id, { lock: "claim" });
    if (sequence.status !== "ACTIVE") throw wrongState(sequence);
    const { numAffectedRows = 0n } = await sql`
      update sequence_enrolments e set due_at = now(), fell_due_at = null
      where ${isWaiting(id)} and e.fell_due_at is not null`.execute(kysely(tx));
    await wakeSequence(tx, id);
    return Number(numAffectedRows);
  });
}

/**
 * Ends a sequence for good, and with it the wait of its people; waves under way end by themselves.
 * @throws {ApiError} `not_found`; `resource_state_invalid` for a DRAFT
 */
export function stopSequence(em: EntityManager, id: string): Promise<Sequence> {
  return transaction(em, async (tx) => {
    const sequence = await readSequence(tx, id, { lock: "entering" });
    if (sequence.status === "STOPPED") return sequence;
    if (sequence.status === "DRAFT") throw wrongState(sequence);
    await endWaiting(tx, id);
    return moveSequence(tx, sequence, "STOPPED", null);
  });
}

/** Its name is for the team alone: it can change at any time. @throws {ApiError} `not_found` */
export async function renameSequence(em: EntityManager, tenant: Tenant, id: string, name: string): Promise<void> {
  const { numAffectedRows } = await sql`
    update campaigns set name = ${name} where id = ${id} and is_drip and ${ofTenant(tenant)}`.execute(kysely(em));
  if (!numAffectedRows) throw notFound();
}

/**
 * Counts opens and clicks of the waves that are claimed after it, in the caller's transaction, or not; null leaves it to the team.
 * @param refuseRunning throws unless the caller may change what is mailed without another confirmation: all but a DRAFT
 * @throws {ApiError} `not_found`; `resource_state_invalid` for one that is STOPPED
 */
export async function changeTracking(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  tracking: boolean | null,
  refuseRunning: () => void,
): Promise<void> {
  const { status } = await readSequence(em, id, { tenant, lock: "claim" });
  if (status !== "DRAFT") refuseRunning();
  if (status === "STOPPED") throw wrongState({ status });
  await sql`update campaigns set tracking = ${tracking} where id = ${id} and ${ofTenant(tenant)}`.execute(kysely(em));
}

/**
 * Moves a DRAFT, or a STOPPED sequence that has mailed no person, to the bin with its steps; its people are not kept.
 * @throws {ApiError} `not_found`; `resource_state_invalid` for another
 */
export function deleteSequence(em: EntityManager, id: string): Promise<void> {
  return transaction(em, async (tx) => {
    const sequence = await readSequence(tx, id, { lock: "entering" });
    if (sequence.wave > 0) throw wrongState(sequence, "it has mailed, and its mails and figures refer to it");
    if (sequence.status !== "DRAFT" && sequence.status !== "STOPPED")
      throw wrongState(sequence, "sequence:stop ends it");
    await moveToBin(tx, sequence, { kind: "sequence", id, name: sequence.name });
  });
}
