import { isDeepStrictEqual } from "node:util";
import { type RawBuilder, sql } from "kysely";
import { z } from "zod";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { readFields } from "../audience/contact-fields.ts";
import { hasControlCharacter } from "../audience/rules.ts";
import { matchingPeople } from "../audience/segments/segments.ts";
import { type Edit, noteEdit } from "../edits.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { assertComposable, examineContent } from "../mail/examination.ts";
import { UnsendableError } from "../mail/header.ts";
import { describeProblem, TemplateError } from "../mail/template-problem.ts";
import { compileDocument, type WrittenDocument } from "../sends/drafts/documents.ts";
import { MAX_BODY_BYTES, MAX_SUBJECT_LENGTH, refuseCrowd } from "../sends/drafts/drafts.ts";
import { keepVersion } from "../sends/drafts/versions.ts";
import { movePeople } from "./enrolments.ts";
import { isWaiting, readSequence, type Sequence, wakeSequence, wrongState } from "./state.ts";

const MAX_STEPS = 50;
const MAX_WAIT_MINUTES = 365 * 24 * 60;

export const stepId = z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, "has 1 to 64 letters, digits, - and _");

const step = z.strictObject({
  id: stepId,
  wait_minutes: z.int().min(0).max(MAX_WAIT_MINUTES),
  time_of_day: z
    .string()
    .regex(/^([01]\d|2[0-3]):[0-5]\d$/, "is a time such as 09:30")
    .nullable()
    .default(null),
  send_days: z
    .array(z.int().min(1).max(7))
    .default([])
    .transform((days) => [...new Set(days)].sort()),
  subject: z
    .string()
    .max(MAX_SUBJECT_LENGTH)
    .refine((text) => text.trim() !== "" && !hasControlCharacter(text), "has one line and is not empty"),
  body: z
    .string()
    .refine((text) => text.trim() !== "", "is empty")
    .refine((text) => Buffer.byteLength(text) <= MAX_BODY_BYTES, `has at most ${MAX_BODY_BYTES} bytes`),
  stop_if: z.unknown().default(null),
  skip_if: z.unknown().default(null),
});
export type Step = z.infer<typeof step>;

/** A step as it is stored: with the document that its `body` is compiled from, null for HTML that was written as such. */
interface WrittenStep extends Step {
  preheader: string | null;
  blocks: unknown;
}

const refusal = (param: string, message: string) =>
  new ApiError("validation_failed", `${param}: ${message}`, { param });

/** @param of the input: before the path of what is wrong in it */
function parse<T>(schema: z.ZodType<T>, given: unknown, of: string): T {
  const parsed = schema.safeParse(given);
  if (parsed.success) return parsed.data;
  const [{ path, message } = { path: [], message: "" }] = parsed.error.issues;
  throw refusal(`${of}${z.core.toDotPath(path)}` || "step", `${message.replace(/^Invalid \w+: /, "")}.`);
}

function parseSteps(given: unknown): Step[] {
  const steps = parse(z.array(step).min(1).max(MAX_STEPS), given, "steps");
  const repeated = steps.findIndex(({ id }, i) => steps.findIndex((other) => other.id === id) < i);
  if (repeated >= 0) throw refusal(`steps[${repeated}].id`, "another step has this id.");
  return steps;
}

/** SQL: arguments of `json_build_object`, of a step `s` and its version `v`. */
export const STEP_TIMES = sql`'id', s.step_id, 'wait_minutes', v.wait_minutes, 'time_of_day', v.time_of_day,
  'send_days', v.send_days, 'subject', v.subject`;
export const STEP_CONTENT = sql`'body', v.body, 'stop_if', v.stop_if, 'skip_if', v.skip_if`;

type SavedStep = Record<"id" | "versionId" | "writtenAt", string> & {
  isUsed: boolean;
  content: WrittenStep;
  writtenBy: string | null;
};

/** Also removed ones, in their order. @param stepId of this one alone */
async function readSteps(em: EntityManager, campaignId: string, stepId: string | null = null) {
  const { rows } = await sql<SavedStep>`
    select s.step_id as id, v.id as "versionId", s.removed_at is null as "isUsed",
      json_build_object(${STEP_TIMES}, ${STEP_CONTENT}, 'preheader', v.preheader, 'blocks', v.blocks) as content,
      ${isoInstant(sql`v.created_at`)} as "writtenAt", v.written_by as "writtenBy"
    from sequence_steps s join sequence_step_versions v on v.id = s.version_id
    where s.campaign_id = ${campaignId} and s.step_id = coalesce(${stepId}, s.step_id) order by s.place`.execute(
    kysely(em),
  );
  return rows;
}

/**
 * One step as its writer sees it; null for one that is not, or no longer, in use.
 * @returns also the version of all steps, which is not newer than the step @throws {ApiError} `not_found` for the sequence
 */
export async function readStep(em: EntityManager, tenant: Tenant, id: string, stepId: string) {
  const { rows } = await sql<{ updatedAt: string }>`
    select ${isoInstant(sql`q.updated_at`)} as "updatedAt" from sequences q
    where q.campaign_id = ${id} and ${ofTenant(tenant, "q")}`.execute(kysely(em));
  const { updatedAt } = orNotFound(rows[0]);
  const [found] = await readSteps(em, id, stepId);
  return { step: found?.isUsed ? found.content : null, updatedAt };
}

/**
 * Compiles the condition of a step to a query for the `id` of those of its people who meet it; null is met by none. Events without a
 * resource are those of the sequence's mails; a subscriber has the custom fields of the contact with their address.
 * @param among queries for the ids and addresses to look among
 * @throws {ApiError} `filter_unsupported` naming the part that cannot be evaluated
 */
export async function peopleWho(
  em: EntityManager,
  { campaignId, listId, teamId, environment }: Sequence,
  among: { ids: RawBuilder<unknown>; emails: RawBuilder<unknown> },
  condition: unknown,
): Promise<RawBuilder<unknown>> {
  if (condition === null) return sql`select null::text as id where false`;
  const tenant = { teamId, environment };
  const people = listId
    ? sql`select p.id, p.email, p.email_spelling, p.first_name, p.last_name, p.created_at, p.updated_at,
        coalesce(k.fields, '{}') as fields, coalesce(k.email_status, 'ACTIVE') as email_status
      from subscribers p left join contacts k on ${ofTenant(tenant, "k")} and k.email = p.email
      where ${ofTenant(tenant, "p")} and p.id in (${among.ids})`
    : sql`select c.* from contacts c where ${ofTenant(tenant, "c")} and c.id in (${among.ids})`;
  return await matchingPeople(em, tenant, condition, { people, emails: among.emails, eventsOf: campaignId });
}

/** Content and conditions of one step can be used. @param of before its parts @throws {ApiError} `validation_failed`, naming the part */
async function checkStep(
  em: EntityManager,
  sequence: Sequence,
  { subject, body: html, ...conditions }: Step,
  of: string,
): Promise<void> {
  const { teamId, fromEmail, fromName } = sequence;
  const fields = (await readFields(em, sequence)).map(({ name }) => name);
  const [problem] = await examineContent(teamId, { subject, html }, fields);
  if (problem) {
    throw refusal(`${of}${problem.field === "html" ? "body" : "subject"}`, `${describeProblem(problem)}.`);
  }
  try {
    await assertComposable(teamId, { subject, html, fromEmail, fromName });
  } catch (error) {
    if (!(error instanceof TemplateError || error instanceof UnsendableError)) throw error;
    throw refusal(`${of}body`, `no message can be composed: ${error.message}.`);
  }
  const none = sql`select null::text where false`;
  const among = { ids: none, emails: none };
  for (const name of ["stop_if", "skip_if"] as const) {
    await peopleWho(em, sequence, among, conditions[name]).catch((error) => {
      throw error instanceof ApiError ? refusal(`${of}${name}`, error.message) : error;
    });
  }
}

/** A new step follows the one before it at once, so that those who have passed a removed step behind that do not get it. */
function mergeOrder(saved: Iterable<string>, steps: readonly Step[]): string[] {
  const order = [...saved];
  const isKnown = new Set(order);
  let place = 0;
  for (const { id } of steps) {
    if (!isKnown.has(id)) order.splice(place, 0, id);
    else if (order.indexOf(id) < place)
      throw refusal("steps", `the step ${id} would change its place: give it another id, and remove this one.`);
    place = order.indexOf(id) + 1;
  }
  return order;
}

/**
 * `refuseRunning` throws unless the caller may change what is mailed without another confirmation: all but a DRAFT.
 * `isLasting` keeps the text that is replaced also where its writer only saves again.
 */
type Saving = { refuseRunning?: () => void; edit?: Edit | null; isLasting?: boolean };
type Counts = Record<"steps" | "added" | "changed" | "removed", number>;

/**
 * Gives a sequence its steps, also while it runs: a step that is left out is removed, and one whose `body` is changed becomes HTML.
 * Those who wait, in no wave, wait for what follows the step that they have passed.
 * @param em in no transaction, with the tenant's filter
 * @param given JSON: a list of steps
 * @returns the number of steps, and how many of them are new, changed, removed
 * @throws {ApiError} `not_found`; `validation_failed`, naming the part; `resource_state_invalid` for one that is STOPPED; as `noteEdit`
 */
export async function saveSteps(em: EntityManager, tenant: Tenant, id: string, given: unknown): Promise<Counts> {
  const check = async (sequence: Sequence) => {
    const steps = parseSteps(given);
    for (const [i, each] of steps.entries()) await checkStep(em, sequence, each, `steps[${i}].`);
    return steps;
  };
  return (await changeSteps(em, tenant, id, check, (_, steps) => steps)).counts;
}

interface OneStep {
  /** All but its id; null removes it. */
  step: Record<string, unknown> | null;
  /** In place of the step's `body`. */
  document: WrittenDocument | null;
  /** The id of the step before a new one, null before the first; else it is the last. */
  after?: string | null | undefined;
}

/** Saves or removes one step. @returns the new version of the steps @throws {ApiError} as `saveSteps` and `compileDocument` */
export async function saveStep(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  stepId: string,
  { step: given, document, after }: OneStep,
  saving: Saving,
): Promise<string> {
  const check = async (sequence: Sequence) => {
    if (given === null) return [];
    refuseCrowd(tenant.teamId);
    const body = document && { body: await compileDocument(em, tenant, document) };
    const content = parse(step, { id: stepId, ...given, ...body }, "");
    if (content.id !== stepId) throw refusal("id", `this is the step ${stepId}.`);
    await checkStep(em, sequence, content, "");
    return [{ ...content, preheader: document?.preheader || null, blocks: document?.blocks ?? null }];
  };
  const place = (used: readonly WrittenStep[], now: readonly WrittenStep[]) => {
    const placeOf = (known: unknown) => used.findIndex((each) => each.id === known);
    const at = placeOf(stepId);
    const end = after === null ? 0 : placeOf(after) + 1 || used.length;
    const steps = at < 0 ? used.toSpliced(end, 0, ...now) : used.toSpliced(at, 1, ...now);
    if (steps.length > 0 && steps.length <= MAX_STEPS) return steps;
    throw refusal("step", `a sequence has 1 to ${MAX_STEPS} steps.`);
  };
  return (await changeSteps(em, tenant, id, check, place, saving)).updatedAt;
}

/**
 * @param check before any lock: content waits for others of its team
 * @param merge what is checked with the steps in use; a `body` that stays as it is keeps its blocks
 */
async function changeSteps<Checked>(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  check: (sequence: Sequence) => Promise<Checked>,
  merge: (used: readonly WrittenStep[], checked: Checked) => readonly (Step & Partial<WrittenStep>)[],
  { refuseRunning = () => {}, edit = null, isLasting = false }: Saving = {},
): Promise<{ counts: Counts; updatedAt: string }> {
  const sequence = await readSequence(em, id, { tenant });
  if (sequence.status !== "DRAFT") refuseRunning();
  const checked = await check(sequence);
  return transaction(em, async (tx) => {
    // An operator's command has more time by itself.
    if (edit) await limitStatements(tx, PATIENT_MS);
    const { status } = await readSequence(tx, id, { tenant, lock: "entering" });
    // It may have been started meanwhile.
    if (status !== "DRAFT") refuseRunning();
    if (status === "STOPPED") throw wrongState({ status });
    await noteEdit(tx, edit, { steps: true });
    const saved = new Map((await readSteps(tx, id)).map((each) => [each.id, each]));
    const used = [...saved.values()].flatMap(({ isUsed, content }) => (isUsed ? [content] : []));
    const steps = merge(used, checked);
    const counts = { steps: steps.length, added: 0, changed: 0, removed: 0 };
    for (const [place, stepId] of mergeOrder(saved.keys(), steps).entries()) {
      const before = saved.get(stepId);
      const given = steps.find((each) => each.id === stepId);
      const kept = given?.body === before?.content.body ? before?.content : undefined;
      const now = given && { preheader: kept?.preheader ?? null, blocks: kept?.blocks ?? null, ...given };
      const isNew = now !== undefined && !isDeepStrictEqual(before?.content, now);
      if (isNew) counts[before ? "changed" : "added"]++;
      if (!now && before?.isUsed) counts.removed++;
      if (isNew && before) {
        const content = { ...before.content, updatedAt: new Date(before.writtenAt), updatedBy: before.writtenBy };
        await keepVersion(tx, { ...content, id, stepId }, now, edit, isLasting);
      }
      // No wave mails a DRAFT.
      const versionId = isNew
        ? await writeVersion(tx, id, now, edit, status === "DRAFT" ? before?.versionId : undefined)
        : before?.versionId;
      await placeStep(tx, id, stepId, place + 1, versionId, now !== undefined);
    }
    await movePeople(
      tx,
      sequence,
      sql`select e.ctid as row, null as leaves, true as passes, e.passed_step_id as passed,
        coalesce(e.passed_at, e.entered_at) as since from sequence_enrolments e where ${isWaiting(id)}`,
    );
    await tx.flush();
    const { rows } = await sql<{ updatedAt: string }>`
      update sequences set updated_at = now(), updated_by = ${edit?.memberId ?? null}
      where campaign_id = ${id} and ${ofTenant(tenant)} returning ${isoInstant(sql`updated_at`)} as "updatedAt"`.execute(
      kysely(tx),
    );
    // A DRAFT has no workflow.
    if (status !== "DRAFT") await wakeSequence(tx, id);
    return { counts, ...orNotFound(rows[0]) };
  });
}

/** Gives a sequence without steps those that another one has now. @param em in the caller's transaction */
export async function copySteps(em: EntityManager, from: string, to: string): Promise<void> {
  const used = (await readSteps(em, from)).filter(({ isUsed }) => isUsed);
  for (const [i, { id: stepId, content }] of used.entries()) {
    const versionId = await writeVersion(em, to, content, null);
    await placeStep(em, to, stepId, i + 1, versionId, true);
  }
}

const placeStep = (
  em: EntityManager,
  campaignId: string,
  id: string,
  place: number,
  versionId: string | undefined,
  isUsed: boolean,
) =>
  sql`insert into sequence_steps (campaign_id, step_id, place, version_id, removed_at)
    values (${campaignId}, ${id}, ${place}, ${versionId}, ${isUsed ? null : sql`now()`})
    on conflict (campaign_id, step_id) do update
    set place = excluded.place, version_id = excluded.version_id, removed_at = excluded.removed_at`.execute(kysely(em));

/** @param id of the version that it replaces @returns the version's id */
async function writeVersion(
  em: EntityManager,
  campaignId: string,
  { id: stepId, ...content }: WrittenStep,
  edit: Edit | null,
  id: string = newId("stepVersion"),
): Promise<string> {
  const json = (value: unknown) => value && JSON.stringify(value);
  const { stop_if, skip_if, blocks } = content;
  const version = {
    ...{ ...content, stop_if: json(stop_if), skip_if: json(skip_if), blocks: json(blocks) },
    ...{ written_by: edit?.memberId ?? null, created_at: sql<string>`now()` },
  };
  await kysely(em)
    .insertInto("sequence_step_versions")
    .values({ id, campaign_id: campaignId, step_id: stepId, ...version })
    .onConflict((conflict) => conflict.column("id").doUpdateSet(version))
    .execute();
  return id;
}
