import { isDeepStrictEqual } from "node:util";
import { type RawBuilder, sql } from "kysely";
import { z } from "zod";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { readFields } from "../audience/contact-fields.ts";
import { hasControlCharacter } from "../audience/rules.ts";
import { matchingPeople } from "../audience/segments/segments.ts";
import { type Edit, noteEdit } from "../edits.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { assertComposable, examineContent } from "../mail/examination.ts";
import { UnsendableError } from "../mail/header.ts";
import { describeProblem, TemplateError } from "../mail/template-problem.ts";
import { MAX_BODY_BYTES, MAX_SUBJECT_LENGTH } from "../sends/drafts/drafts.ts";
import { movePeople } from "./enrolments.ts";
import { isWaiting, readSequence, type Sequence, wakeSequence, wrongState } from "./state.ts";

const MAX_STEPS = 50;
const MAX_WAIT_MINUTES = 365 * 24 * 60;

const step = z.strictObject({
  id: z.string().regex(/^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$/, "has 1 to 64 letters, digits, - and _"),
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

const refusal = (param: string, message: string) =>
  new ApiError("validation_failed", `${param}: ${message}`, { param });

function parseSteps(given: unknown): Step[] {
  const parsed = z.array(step).min(1).max(MAX_STEPS).safeParse(given);
  if (!parsed.success) {
    const [{ path, message } = { path: [], message: "" }] = parsed.error.issues;
    const at = z.core.toDotPath(path);
    throw refusal(`steps${at}`, `${message.replace(/^Invalid \w+: /, "")}.`);
  }
  const steps = parsed.data;
  const repeated = steps.findIndex(({ id }, i) => steps.findIndex((other) => other.id === id) < i);
  if (repeated >= 0) throw refusal(`steps[${repeated}].id`, "another step has this id.");
  return steps;
}

/** SQL: arguments of `json_build_object`, of a step `s` and its version `v`. */
export const STEP_TIMES = sql`'id', s.step_id, 'wait_minutes', v.wait_minutes, 'time_of_day', v.time_of_day,
  'send_days', v.send_days, 'subject', v.subject`;
export const STEP_CONTENT = sql`'body', v.body, 'stop_if', v.stop_if, 'skip_if', v.skip_if`;

/** Also removed ones, in their order. */
async function readSteps(em: EntityManager, campaignId: string) {
  const { rows } = await sql<{ id: string; versionId: string; isUsed: boolean; content: Step }>`
    select s.step_id as id, v.id as "versionId", s.removed_at is null as "isUsed",
      json_build_object(${STEP_TIMES}, ${STEP_CONTENT}) as content
    from sequence_steps s join sequence_step_versions v on v.id = s.version_id
    where s.campaign_id = ${campaignId} order by s.place`.execute(kysely(em));
  return rows;
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

/** Content and conditions of one step can be used. @throws {ApiError} `validation_failed`, naming the part */
async function checkStep(
  em: EntityManager,
  sequence: Sequence,
  { subject, body: html, ...conditions }: Step,
  at: string,
): Promise<void> {
  const { teamId, segmentId, fromEmail, fromName } = sequence;
  const fields = segmentId === null ? [] : (await readFields(em, sequence)).map(({ name }) => name);
  const [problem] = await examineContent(teamId, { subject, html }, fields);
  if (problem) {
    throw refusal(`${at}.${problem.field === "html" ? "body" : "subject"}`, `${describeProblem(problem)}.`);
  }
  try {
    await assertComposable(teamId, { subject, html, fromEmail, fromName });
  } catch (error) {
    if (!(error instanceof TemplateError || error instanceof UnsendableError)) throw error;
    throw refusal(at, `no message can be composed: ${error.message}.`);
  }
  const none = sql`select null::text where false`;
  const among = { ids: none, emails: none };
  for (const name of ["stop_if", "skip_if"] as const) {
    await peopleWho(em, sequence, among, conditions[name]).catch((error) => {
      throw error instanceof ApiError ? refusal(`${at}.${name}`, error.message) : error;
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
 * Gives a sequence its steps, also while it runs: a step that is left out is removed, and one that is changed gets a new
 * version. Those who wait, in no wave, wait for what follows the step that they have passed.
 * @param em in no transaction, with the tenant's filter
 * @param given JSON: a list of steps
 * @param refuseRunning throws unless the caller may change what is mailed without another confirmation: all but a DRAFT
 * @param edit the member's who saves them, and the `updated_at` of the steps that they have seen
 * @returns the number of steps, and how many of them are new, changed, removed
 * @throws {ApiError} `not_found`; `validation_failed`, naming the part; `resource_state_invalid` for one that is STOPPED; as `noteEdit`
 */
export async function saveSteps(
  em: EntityManager,
  tenant: Tenant,
  id: string,
  given: unknown,
  refuseRunning: () => void = () => {},
  edit: Edit | null = null,
): Promise<{ steps: number; added: number; changed: number; removed: number }> {
  const sequence = await readSequence(em, id, { tenant });
  if (sequence.status !== "DRAFT") refuseRunning();
  const steps = parseSteps(given);
  // Before any lock: content waits for others of its team.
  for (const [i, each] of steps.entries()) await checkStep(em, sequence, each, `steps[${i}]`);
  return transaction(em, async (tx) => {
    // An operator's command has more time by itself.
    if (edit) await limitStatements(tx, PATIENT_MS);
    const { status } = await readSequence(tx, id, { tenant, lock: "entering" });
    // It may have been started meanwhile.
    if (status !== "DRAFT") refuseRunning();
    if (status === "STOPPED") throw wrongState({ status });
    await noteEdit(tx, edit, { steps: true });
    const saved = new Map((await readSteps(tx, id)).map((each) => [each.id, each]));
    const counts = { steps: steps.length, added: 0, changed: 0, removed: 0 };
    for (const [place, stepId] of mergeOrder(saved.keys(), steps).entries()) {
      const before = saved.get(stepId);
      const now = steps.find((each) => each.id === stepId);
      const isNew = now !== undefined && !isDeepStrictEqual(before?.content, now);
      if (isNew) counts[before ? "changed" : "added"]++;
      if (!now && before?.isUsed) counts.removed++;
      const versionId = isNew ? await insertVersion(tx, id, now) : before?.versionId;
      await sql`
        insert into sequence_steps (campaign_id, step_id, place, version_id, removed_at)
        values (${id}, ${stepId}, ${place + 1}, ${versionId}, ${now ? null : sql`now()`})
        on conflict (campaign_id, step_id) do update
        set place = excluded.place, version_id = excluded.version_id, removed_at = excluded.removed_at`.execute(
        kysely(tx),
      );
    }
    await movePeople(
      tx,
      sequence,
      sql`select e.ctid as row, null as leaves, true as passes, e.passed_step_id as passed,
        coalesce(e.passed_at, e.entered_at) as since from sequence_enrolments e where ${isWaiting(id)}`,
    );
    await sql`update sequences set updated_at = now(), updated_by = ${edit?.memberId ?? null}
      where campaign_id = ${id} and ${ofTenant(tenant)}`.execute(kysely(tx));
    // A DRAFT has no workflow.
    if (status !== "DRAFT") await wakeSequence(tx, id);
    return counts;
  });
}

async function insertVersion(em: EntityManager, campaignId: string, { id: stepId, ...content }: Step): Promise<string> {
  const id = newId("stepVersion");
  const [stopIf, skipIf] = [content.stop_if, content.skip_if].map(
    (condition) => condition && JSON.stringify(condition),
  );
  const version = { ...content, stop_if: stopIf, skip_if: skipIf };
  await kysely(em)
    .insertInto("sequence_step_versions")
    .values({ id, campaign_id: campaignId, step_id: stepId, ...version })
    .execute();
  return id;
}
