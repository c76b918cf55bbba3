import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { Segment } from "../../../db/entities/contact.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { transaction } from "../../../db/transaction.ts";
import { isCancelled } from "../../../db/unreachable.ts";
import { addRowsToBin, moveToBin } from "../../bin/bin.ts";
import { ApiError, orNotFound } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { holdPlace } from "../../teams/record-limit.ts";
import { readFields } from "../contact-fields.ts";
import { charactersIn, hasControlCharacter, MAX_NAME_LENGTH } from "../rules.ts";
import type { Among, Compilation } from "./compilation.ts";
import { contactsQuery } from "./condition.ts";
import { ConditionProblem, type Place } from "./place.ts";

export const MAX_SEGMENTS = 500;
/** SQL: a segment that was not deleted. */
export const IS_NOT_BINNED = sql<boolean>`deleted_at is null`;

const SAMPLE_SIZE = 20;

/** Members count while they write conditions, several at once. */
const COUNT_LIMITS = { timeoutMs: 2_000, workMem: "16MB" };
type CountLimits = typeof COUNT_LIMITS;
/** For operators, who count one segment at a time: with 16 MB, a million addresses go to disk several times. */
export const PATIENT_COUNT: CountLimits = { timeoutMs: 60_000, workMem: "64MB" };

export interface SegmentCount {
  contacts: number;
  /** The planner's estimate, without a sample: the count took too long. */
  is_estimate: boolean;
  sample: string[];
}

function refuseUnknown(places: readonly Place[], known: readonly { id: string }[], rule: string): void {
  const ids = new Set<unknown>(known.map(({ id }) => id));
  const unknown = places.find(({ value }) => !ids.has(value));
  if (unknown) throw unknown.problem(rule);
}

/**
 * Lists must exist: under `not`, a deleted one would select every contact. Newsletters, campaigns and their
 * links are checked when a segment is made, because one that has mailed is never deleted. @throws {ConditionProblem}
 */
async function compileConditions(
  em: EntityManager,
  tenant: Tenant,
  conditions: unknown,
  { among, only }: { among?: Among; only?: RawBuilder<unknown> | undefined } = {},
) {
  const declared = new Map((await readFields(em, tenant)).map(({ name, type }) => [name, type]));
  const compilation: Compilation = { tenant, declared, sets: [], lists: [], resources: [], links: [], among };
  const query = contactsQuery(conditions, compilation, only);
  const { lists } = compilation;
  if (lists.length > 0) {
    const ids = lists.map(({ value }) => String(value));
    const known = await kysely(em)
      .selectFrom("lists")
      .select("id")
      .where(ofTenant(tenant))
      .where("id", "in", ids)
      .execute();
    refuseUnknown(lists, known, "must be the id of a list of the team");
  }
  return { query, compilation };
}

async function refuseUnknownMails(em: EntityManager, tenant: Tenant, { resources, links }: Compilation): Promise<void> {
  const find = (table: "newsletters" | "campaigns" | "tracked_links", places: readonly Place[]) =>
    kysely(em)
      .selectFrom(table)
      .select("id")
      .where(ofTenant(tenant))
      .where(
        "id",
        "in",
        places.map(({ value }) => String(value)),
      );
  if (resources.length > 0) {
    const known = await find("newsletters", resources).unionAll(find("campaigns", resources)).execute();
    refuseUnknown(resources, known, "must be the id of a newsletter or campaign of the team");
  }
  if (links.length === 0) return;
  refuseUnknown(links, await find("tracked_links", links).execute(), "must be the id of a link that was clicked");
}

const refusal = (message: string, param?: string) => new ApiError("validation_failed", message, { param });

interface SegmentFields {
  name: string;
  conditions: unknown;
}

function refuseName(name: string): void {
  if (name === "" || charactersIn(name) > MAX_NAME_LENGTH || hasControlCharacter(name) || !name.isWellFormed()) {
    throw refusal(`A segment's name has one line and 1 to ${MAX_NAME_LENGTH} characters.`, "name");
  }
}

/** @throws {ApiError} `validation_failed` with the JSON path of the part at fault */
async function checkConditions(em: EntityManager, tenant: Tenant, conditions: unknown): Promise<RawBuilder<unknown>> {
  try {
    const { query, compilation } = await compileConditions(em, tenant, conditions);
    await refuseUnknownMails(em, tenant, compilation);
    return query;
  } catch (error) {
    throw error instanceof ConditionProblem ? refusal(`${error.message}.`) : error;
  }
}

/**
 * Stores a segment, in the caller's transaction.
 * @throws {ApiError} `validation_failed` with the JSON path of the part at fault; `resource_limit_reached`
 */
export async function createSegment(
  em: EntityManager,
  tenant: Tenant,
  { name, conditions }: SegmentFields,
): Promise<Segment> {
  refuseName(name);
  await holdPlace(em, tenant, { table: "segments", name: "segments", condition: IS_NOT_BINNED }, MAX_SEGMENTS);
  await checkConditions(em, tenant, conditions);
  const segment = em.create(Segment, { id: newId("segment"), ...tenant, name, conditions });
  await em.flush();
  return em.refreshOrFail(segment);
}

/**
 * Changes a segment, in the caller's transaction. Drafts and sequences that target it mail those whom it selects then.
 * @throws {ApiError} `not_found`; `validation_failed` with the JSON path of the part at fault
 */
export async function updateSegment(
  em: EntityManager,
  tenant: Tenant,
  segmentId: string,
  { name, conditions }: SegmentFields,
): Promise<Segment> {
  const segment = await lockSegment(em, segmentId, LockMode.PESSIMISTIC_WRITE);
  refuseName(name);
  await checkConditions(em, tenant, conditions);
  // Else the properties that are left out of the new conditions would stay.
  em.assign(segment, { name, conditions }, { mergeObjectProperties: false });
  await em.flush();
  return em.refreshOrFail(segment);
}

/** Deleted or not. @throws {ApiError} `not_found` */
export const readSegment = async (em: EntityManager, id: string): Promise<Segment> =>
  orNotFound(await em.findOne(Segment, { id }));

/**
 * Locks a segment against deletion. Lock it before the drafts that target it.
 * @throws {ApiError} `not_found`, also for one that was deleted
 */
export async function lockSegment(em: EntityManager, segmentId: string, lockMode: LockMode): Promise<Segment> {
  const segment = orNotFound(await em.findOne(Segment, { id: segmentId }, { lockMode, refresh: true }));
  refuseDeleted(segment);
  return segment;
}

function refuseDeleted({ id, deletedAt }: Segment): void {
  if (deletedAt) throw new ApiError("not_found", `There is no record ${id} any more.`);
}

export const readSegments = (em: EntityManager): Promise<Segment[]> =>
  em.find(Segment, { deletedAt: null }, { orderBy: { id: "asc" } });

/**
 * Moves a segment to the bin. Drafts of campaigns lose it. Newsletters keep it, so that none goes to all people of its lists instead;
 * scheduled sends keep it for `readSegment`. @throws {ApiError} `not_found`
 */
export async function deleteSegment(em: EntityManager, segmentId: string): Promise<void> {
  const segment = await lockSegment(em, segmentId, LockMode.PESSIMISTIC_WRITE);
  await moveToBin(em, segment, { kind: "segment", id: segmentId, name: segment.name });
  const marked = sql`update segments g set deleted_at = now() where ${ofTenant(segment, "g")} and g.id = ${segmentId}
    returning jsonb_build_object('id', g.id) as data`;
  await addRowsToBin(em, segment, segmentId, "segments", marked);
  const drafts = sql`update campaigns c set segment_id = null where ${ofTenant(segment, "c")} and c.segment_id = ${segmentId}
    and c.status = 'DRAFT' returning jsonb_build_object('id', c.id) as data`;
  await addRowsToBin(em, segment, segmentId, "campaigns", drafts);
}

/**
 * A query for the contacts of a segment, each once. Read it as `from (query) c`: as a condition, Postgres may walk a whole
 * set of addresses per contact.
 * @param only SQL: a condition on a contact `c` that narrows it
 * @throws {ApiError} `not_found`; `filter_unsupported` naming the part that cannot be evaluated
 */
export async function segmentContacts(
  em: EntityManager,
  tenant: Tenant,
  segmentId: string,
  only?: RawBuilder<unknown>,
): Promise<RawBuilder<unknown>> {
  const segment = await readSegment(em, segmentId);
  refuseDeleted(segment);
  try {
    return (await compileConditions(em, tenant, segment.conditions, { only })).query;
  } catch (error) {
    if (!(error instanceof ConditionProblem)) throw error;
    throw new ApiError(
      "filter_unsupported",
      `The segment ${segmentId} cannot be evaluated: ${error.message}. Make another segment in the app, and attach it.`,
    );
  }
}

/**
 * A query for the people, out of `among`, who meet conditions that no segment holds.
 * @throws {ApiError} `filter_unsupported` naming the part that cannot be evaluated
 */
export async function matchingPeople(
  em: EntityManager,
  tenant: Tenant,
  conditions: unknown,
  among: Among,
): Promise<RawBuilder<unknown>> {
  try {
    const { query, compilation } = await compileConditions(em, tenant, conditions, { among });
    await refuseUnknownMails(em, tenant, compilation);
    return query;
  } catch (error) {
    if (!(error instanceof ConditionProblem)) throw error;
    throw new ApiError("filter_unsupported", `The condition cannot be evaluated: ${error.message}.`);
  }
}

/** @throws {ApiError} `not_found`; `filter_unsupported` when the segment cannot be evaluated */
export const countSegment = (em: EntityManager, tenant: Tenant, segmentId: string, limits?: CountLimits) =>
  countContacts(em, (tx) => segmentContacts(tx, tenant, segmentId), limits);

/** The same of conditions that no segment holds. @throws {ApiError} `validation_failed` */
export const countConditions = (em: EntityManager, tenant: Tenant, conditions: unknown, limits?: CountLimits) =>
  countContacts(em, (tx) => checkConditions(tx, tenant, conditions), limits);

async function countContacts(
  em: EntityManager,
  queryContacts: (tx: EntityManager) => Promise<RawBuilder<unknown>>,
  { timeoutMs, workMem }: CountLimits = COUNT_LIMITS,
): Promise<SegmentCount> {
  try {
    return await transaction(em, async (tx) => {
      const contacts = await queryContacts(tx);
      const db = kysely(tx);
      await sql`select set_config('statement_timeout', ${`${timeoutMs}ms`}, true),
        set_config('work_mem', ${workMem}, true)`.execute(db);
      // In one pass: the conditions cost more than to keep the addresses.
      const { rows } = await sql<Omit<SegmentCount, "is_estimate">>`
        with selected as materialized (select coalesce(c.email_spelling, c.email) as email from (${contacts}) c)
        select (select count(*)::int from selected) as contacts,
          array(select email from selected limit ${SAMPLE_SIZE}) as sample`.execute(db);
      const [counted] = rows;
      if (!counted) throw new Error("a count returned no row");
      return { ...counted, is_estimate: false };
    });
  } catch (error) {
    if (!isCancelled(error)) throw error;
    const explained = sql<{ "QUERY PLAN": [{ Plan: { "Plan Rows": number } }] }>`
      explain (format json) select from (${await queryContacts(em)}) c`;
    const [row] = (await explained.execute(kysely(em))).rows;
    if (!row) throw error;
    return { contacts: row["QUERY PLAN"][0].Plan["Plan Rows"], is_estimate: true, sample: [] };
  }
}

export interface SegmentUse {
  id: string;
  name: string;
  status: string;
  is_sequence: boolean;
}

/** Drafts that could not be sent without the segment, and sequences that would pause. */
export async function readSegmentUse(em: EntityManager, tenant: Tenant, segmentId: string): Promise<SegmentUse[]> {
  const { rows } = await sql<SegmentUse>`
    select c.id, c.name, c.status, c.is_drip as is_sequence
    from campaigns c left join sequences q on q.campaign_id = c.id and ${ofTenant(tenant, "q")}
    where ${ofTenant(tenant, "c")} and coalesce(q.segment_id, c.segment_id) = ${segmentId}
      and (c.status = 'DRAFT' or c.is_drip and c.status in ('ACTIVE', 'PAUSED'))
    union all select n.id, n.name, n.status, false from newsletters n
    where ${ofTenant(tenant, "n")} and n.segment_id = ${segmentId} and n.status = 'DRAFT'
    order by name, id`.execute(kysely(em));
  return rows;
}

/** A segment as the app shows it. */
export const segmentRecord = ({ id, name, conditions, deletedAt, createdAt, updatedAt }: Segment) => ({
  id,
  name,
  conditions,
  ...(deletedAt && { deleted_at: deletedAt.toISOString() }),
  created_at: createdAt.toISOString(),
  updated_at: updatedAt.toISOString(),
});
