import { z } from "zod";
import { Subscription } from "../../../db/entities/audience.ts";
import { CAMPAIGN_STATUSES } from "../../../db/entities/send.ts";
import { ENROLMENT_STATES } from "../../../db/entities/sequence.ts";
import { limitStatements, PATIENT_MS } from "../../../db/statements.ts";
import { transaction } from "../../../db/transaction.ts";
import { requireRole } from "../../../domain/access/access.ts";
import { keyOfSessions } from "../../../domain/access/session-key.ts";
import { lookupAddress } from "../../../domain/address.ts";
import { readFields } from "../../../domain/audience/contact-fields.ts";
import { countSegment } from "../../../domain/audience/segments/segments.ts";
import { noteEdit } from "../../../domain/edits.ts";
import { ApiError, ERRORS, type ErrorCode } from "../../../domain/errors.ts";
import { isOfBrand } from "../../../domain/mail/blocks/compile.ts";
import { withLogo } from "../../../domain/mail/blocks/logo.ts";
import { sentenceFor } from "../../../domain/mail/smtp-sentences.ts";
import { mergeTags } from "../../../domain/mail/template.ts";
import { BLANK } from "../../../domain/mail/templates/own.ts";
import { resumeRefusal } from "../../../domain/sends/client-commands.ts";
import { PAUSE_REASONS } from "../../../domain/sends/pause-reasons.ts";
import { isRefusalReason, sentenceOf } from "../../../domain/sends/refusal.ts";
import { listSequences, showSequence } from "../../../domain/sequences/progress.ts";
import {
  changeTracking,
  createSequence,
  deleteSequence,
  renameSequence,
  resumeSequence,
  startSequence,
  stopSequence,
} from "../../../domain/sequences/sequences.ts";
import { pageEnrolled } from "../../../domain/sequences/shown-enrolments.ts";
import { pauseSequence, readSequence, type Sequence } from "../../../domain/sequences/state.ts";
import { readStep, saveStep, stepId } from "../../../domain/sequences/steps.ts";
import { brandOf } from "../../../domain/teams/brand.ts";
import type { RequestContext } from "../../context.ts";
import { address, name } from "../../fields.ts";
import { idParam, idParamOf, router } from "../../rest/route.ts";
import { withResults, written } from "../content/routes.ts";
import { consoleMutation, consoleQuery } from "../procedure.ts";

const PAGE = 50;

const params = z.strictObject({ sequenceId: idParamOf("campaign", "The id of the sequence.") });
const ofSequence = z.strictObject({ params });
const ofSequenceWith = <S extends z.ZodType>(body: S) => z.strictObject({ params, body });

const presentStatus = ({ campaignId, status, reason }: Sequence) => ({ id: campaignId, status, status_reason: reason });

const PROBLEMS: Readonly<Record<string, string>> = {
  [PAUSE_REASONS.client]: "Your team paused it.",
  [PAUSE_REASONS.databaseRestored]: "The service was restored from a backup. An operator will resume it.",
  [PAUSE_REASONS.workflowEnded]: "The service stopped it after an internal failure. An operator will resume it.",
  [PAUSE_REASONS.claimFailed]:
    "People who were due could not be emailed for an hour. Shorten the conditions of its steps, or ask an operator of the service.",
  wave_cancelled: "An operator cancelled some of its emails; those people wait for them again.",
};

/** Why it is PAUSED, in words. */
function problemOf(reason: string | null): string {
  if (reason === null) return "An operator of the service paused it, and has to resume it.";
  const problem = isRefusalReason(reason) ? sentenceOf(reason, "campaign") : PROBLEMS[reason];
  if (problem !== undefined) return problem;
  return isErrorCode(reason) ? ERRORS[reason].meaning : sentenceFor(reason);
}
const isErrorCode = (text: string): text is ErrorCode => Object.hasOwn(ERRORS, text);

/** The key by which the member's sessions send. */
const ownKey = async ({ em, vault, tenant, access }: RequestContext): Promise<string> =>
  (await keyOfSessions(em, vault, tenant, access.caller.memberId)).id;

export const sequencesRouter = router({
  page: consoleQuery(
    {
      role: "VIEWER",
      isHeavy: true,
      input: z.strictObject({
        query: z.strictObject({
          q: z.string().max(200).optional(),
          status: z.enum(CAMPAIGN_STATUSES).optional(),
          cursor: idParam.optional(),
        }),
      }),
    },
    async ({ ctx, input: { query } }) => {
      const statuses = query.status && [query.status];
      const filter = { tenant: ctx.tenant, name: query.q, statuses, after: query.cursor, limit: PAGE };
      const sequences = await listSequences(ctx.em, filter);
      return { sequences: await withResults(ctx, sequences), next_cursor: sequences[PAGE - 1]?.id ?? null };
    },
  ),

  show: consoleQuery({ role: "VIEWER", input: ofSequence }, async ({ ctx, input }) => {
    const { em, tenant } = ctx;
    const { sequenceId } = input.params;
    const shown = await showSequence(em, tenant, sequenceId);
    return {
      ...presentStatus(shown),
      /** While it is PAUSED. */
      problem: problemOf(shown.reason),
      /** Otherwise an operator alone resumes it. */
      may_resume: shown.status === "PAUSED" && resumeRefusal(shown.reason) === undefined,
      name: shown.name,
      list_id: shown.listId,
      list_name: shown.listName,
      segment_id: shown.segmentId,
      segment_name: shown.segmentName,
      from_email: shown.fromEmail,
      from_name: shown.fromName,
      tracking: shown.ownTracking,
      team_tracking: shown.teamTracking,
      merge_tags: mergeTags(shown.listId !== null, await readFields(em, tenant)),
      are_members_noted: shown.areMembersNoted,
      people: shown.people,
      next_due_at: shown.nextDueAt,
      mailed_today: shown.mailedToday,
      due: shown.due,
      steps: shown.steps,
      updated_at: shown.updatedAt,
      steps_updated_at: shown.stepsUpdatedAt,
    };
  }),

  /** A page of the people who are or were in a sequence. */
  people: consoleQuery(
    {
      role: "VIEWER",
      isHeavy: true,
      input: z.strictObject({
        params,
        query: z.strictObject({
          state: z.enum(ENROLMENT_STATES).optional(),
          step_id: stepId.optional(),
          after: idParam.optional(),
        }),
      }),
    },
    ({ ctx, input: { params, query } }) => {
      const { step_id: stepId, ...filter } = query;
      return pageEnrolled(ctx.em, ctx.tenant, params.sequenceId, { stepId, ...filter });
    },
  ),

  /** Those who would enter a sequence at its start with its members. */
  countMembers: consoleQuery({ role: "EDITOR", input: ofSequence, isHeavy: true }, async ({ ctx, input }) => {
    const { em, tenant } = ctx;
    const { sequenceId } = input.params;
    const { listId, segmentId } = await readSequence(em, sequenceId, { tenant });
    if (segmentId === null) {
      const members = await em.count(Subscription, { listId: listId ?? "", status: "CONFIRMED" });
      return { members, is_estimate: false };
    }
    const { contacts, is_estimate } = await countSegment(em, tenant, segmentId);
    return { members: contacts, is_estimate };
  }),

  create: consoleMutation(
    {
      role: "EDITOR",
      input: z.strictObject({
        body: z.strictObject({
          name,
          list_id: idParam.optional(),
          segment_id: idParam.optional(),
          from_email: address.transform(lookupAddress),
          from_name: name.nullable().default(null),
        }),
      }),
    },
    async ({ ctx, input: { body } }) => {
      const sequence = { name: body.name, fromEmail: body.from_email, fromName: body.from_name };
      if (ctx.tenant.environment !== "LIVE") {
        throw new ApiError("validation_failed", "Sequences are LIVE only: the test environment sends no email.");
      }
      const target = { listId: body.list_id, segmentId: body.segment_id };
      return { id: await createSequence(ctx.em, ctx.tenant, { ...sequence, ...target }, ctx.env.MAX_CAMPAIGNS) };
    },
  ),

  rename: consoleMutation(
    { role: "EDITOR", input: ofSequenceWith(z.strictObject({ name })) },
    async ({ ctx, input: { params, body } }) => {
      await renameSequence(ctx.em, ctx.tenant, params.sequenceId, body.name);
      return { id: params.sequenceId, name: body.name };
    },
  ),

  /** Of one that was started by who may send, as its steps. */
  changeTracking: consoleMutation(
    { role: "EDITOR", input: ofSequenceWith(z.strictObject({ tracking: z.boolean().nullable() })), isPatient: true },
    async ({ ctx: { em, tenant, access }, input: { params, body } }) => {
      await changeTracking(em, tenant, params.sequenceId, body.tracking, () => requireRole(access, "ADMIN"));
      return { id: params.sequenceId, tracking: body.tracking };
    },
  ),

  remove: consoleMutation(
    { role: "EDITOR", input: ofSequence, isPatient: true },
    async ({ ctx, input: { params } }) => {
      await readSequence(ctx.em, params.sequenceId, { tenant: ctx.tenant });
      await deleteSequence(ctx.em, params.sequenceId);
      return { id: params.sequenceId };
    },
  ),

  /** One step as its writer sees it. One that does not exist is null, with the blocks that a new one begins with. */
  step: consoleQuery(
    { role: "VIEWER", isHeavy: true, input: z.strictObject({ params, query: z.strictObject({ step_id: stepId }) }) },
    async ({ ctx, input: { params, query } }) => {
      const { step, updatedAt } = await readStep(ctx.em, ctx.tenant, params.sequenceId, query.step_id);
      const brand = await brandOf(ctx.em, ctx.tenant.teamId);
      const isOld = step?.blocks != null && !isOfBrand(step.body, brand);
      const first = step ? null : withLogo(BLANK.blocks, brand);
      return { step, first_blocks: first, updated_at: updatedAt, is_of_old_brand: isOld };
    },
  ),

  /** As `OneStep`. Steps of one that was started are mailed without another confirmation: they take who may send. */
  saveStep: consoleMutation(
    {
      role: "EDITOR",
      audit: "daily",
      isHeavy: true,
      input: ofSequenceWith(
        z.strictObject({
          step_id: stepId,
          step: z.record(z.string(), z.unknown()).nullable(),
          document: z.strictObject(written).omit({ subject: true }).nullable().default(null),
          after: stepId.nullable().optional(),
          /** Keeps the text that it replaces also where its writer only saves again. */
          is_lasting: z.boolean().default(false),
        }),
      ),
      ownCommit: true,
    },
    async ({ ctx: { em, tenant, access, edit }, input: { params, body } }) => {
      const saving = { refuseRunning: () => requireRole(access, "ADMIN"), edit, isLasting: body.is_lasting };
      return { updated_at: await saveStep(em, tenant, params.sequenceId, body.step_id, body, saving) };
    },
  ),

  start: consoleMutation(
    { role: "ADMIN", input: ofSequenceWith(z.strictObject({ include_members: z.boolean() })), ownCommit: true },
    async ({ ctx, input }) => {
      const { sequenceId } = input.params;
      await readSequence(ctx.em, sequenceId, { tenant: ctx.tenant });
      const start = { key: await ownKey(ctx), includeMembers: input.body.include_members };
      await transaction(ctx.em, async (tx) => {
        await limitStatements(tx, PATIENT_MS);
        await noteEdit(tx, ctx.edit, { steps: true });
        await startSequence(tx, ctx.tenant, sequenceId, start);
      });
      return { id: sequenceId };
    },
  ),

  pause: consoleMutation({ role: "ADMIN", input: ofSequence, isPatient: true }, async ({ ctx, input: { params } }) => {
    await readSequence(ctx.em, params.sequenceId, { tenant: ctx.tenant });
    return presentStatus(await pauseSequence(ctx.em, params.sequenceId, PAUSE_REASONS.client));
  }),

  resume: consoleMutation(
    {
      role: "ADMIN",
      input: ofSequenceWith(
        z.strictObject({
          /** Whether people who were due at the pause are mailed or pass their step. */
          due: z.enum(["mail", "skip"]).optional(),
          /** In place of the key that it was started with. */
          with_own_key: z.boolean().default(false),
        }),
      ),
      ownCommit: true,
    },
    async ({ ctx, input }) => {
      const { sequenceId } = input.params;
      await readSequence(ctx.em, sequenceId, { tenant: ctx.tenant });
      const key = input.body.with_own_key ? await ownKey(ctx) : undefined;
      return resumeSequence(ctx.em, sequenceId, { due: input.body.due, key, isByClient: true });
    },
  ),

  stop: consoleMutation({ role: "ADMIN", input: ofSequence, isPatient: true }, async ({ ctx, input: { params } }) => {
    await readSequence(ctx.em, params.sequenceId, { tenant: ctx.tenant });
    return presentStatus(await stopSequence(ctx.em, params.sequenceId));
  }),
});
