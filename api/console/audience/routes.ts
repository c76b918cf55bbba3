import { z } from "zod";
import { List } from "../../../db/entities/audience.ts";
import { CONTACT_FIELD_TYPES } from "../../../db/entities/contact.ts";
import { lookupAddress, MAX_ADDRESS_LENGTH } from "../../../domain/address.ts";
import { createField, deleteField, readFieldUse } from "../../../domain/audience/contact-fields.ts";
import { listLists, MOST_COUNTED } from "../../../domain/audience/listed-lists.ts";
import { countSuppressions, listPeople, PERSON_STATUSES } from "../../../domain/audience/listed-people.ts";
import { updateList } from "../../../domain/audience/lists.ts";
import { readMailHistory } from "../../../domain/audience/mail-history.ts";
import { SEARCHED_TABLES, searchRecords } from "../../../domain/audience/search.ts";
import {
  countConditions,
  createSegment,
  deleteSegment,
  readSegment,
  readSegments,
  readSegmentUse,
  segmentRecord,
  updateSegment,
} from "../../../domain/audience/segments/segments.ts";
import { readSubscriptionProofs } from "../../../domain/audience/subscription-proofs.ts";
import { setConsents } from "../../../domain/audience/tracking-consents.ts";
import { unsubscribeMember } from "../../../domain/audience/unsubscribes.ts";
import { refuseErased } from "../../../domain/erasure/erased-addresses.ts";
import { archiveUrl } from "../../../domain/sends/web-pages.ts";
import { readEnrolments } from "../../../domain/sequences/shown-enrolments.ts";
import { byName } from "../../../lib/natural-order.ts";
import { address } from "../../fields.ts";
import { membershipParams } from "../../lists/schema.ts";
import { givenConsent } from "../../people.ts";
import { idParam, router } from "../../rest/route.ts";
import { bodyOf, consoleMutation, consoleQuery, noInput } from "../procedure.ts";

const email = z.string().min(1).max(MAX_ADDRESS_LENGTH);
const fieldBody = z.strictObject({ name: z.string() });
const segmentParams = z.strictObject({ segmentId: idParam });
const segmentBody = z.strictObject({ name: z.string().trim(), conditions: z.unknown() });

const search = consoleQuery(
  {
    role: "VIEWER",
    isHeavy: true,
    input: z.strictObject({
      query: z.strictObject({ in: z.enum(SEARCHED_TABLES), text: email, list_id: idParam.optional() }),
    }),
  },
  ({ ctx, input: { query } }) => searchRecords(ctx.em, ctx.tenant, query.in, query.text, query.list_id),
);

/** The subscribers and contacts of the team, each person once. */
const people = consoleQuery(
  {
    role: "VIEWER",
    isHeavy: true,
    input: z.strictObject({
      query: z.strictObject({
        text: email.optional(),
        list_id: idParam.optional(),
        segment_id: idParam.optional(),
        status: z.enum(PERSON_STATUSES).optional(),
        after: email.optional(),
      }),
    }),
  },
  ({ ctx, input: { query } }) => {
    const { list_id: listId, segment_id: segmentId, ...filter } = query;
    return listPeople(ctx.em, ctx.tenant, { listId, segmentId, ...filter });
  },
);

const suppressed = consoleQuery(
  { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ reason: z.string().max(200).optional() }) }) },
  ({ ctx, input: { query } }) => countSuppressions(ctx.em, ctx.tenant, query.reason),
);

const enrolments = consoleQuery(
  { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ email }) }) },
  ({ ctx, input: { query } }) => readEnrolments(ctx.em, ctx.vault, ctx.tenant, lookupAddress(query.email)),
);

const history = consoleQuery(
  { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ email, before: idParam.optional() }) }) },
  ({ ctx, input: { query } }) => readMailHistory(ctx.em, ctx.tenant, lookupAddress(query.email), query.before),
);

/** How and when a person agreed to the mails of each of their lists. */
const subscriptionProofs = consoleQuery(
  { role: "VIEWER", input: z.strictObject({ query: z.strictObject({ email }) }) },
  ({ ctx, input: { query } }) => readSubscriptionProofs(ctx.em, ctx.tenant, lookupAddress(query.email)),
);

const PAGE = 50;

/** A page of the lists, or one list, with their members. */
const lists = consoleQuery(
  {
    role: "VIEWER",
    isHeavy: true,
    input: z.strictObject({
      query: z.strictObject({
        q: z.string().max(200).optional(),
        list_id: idParam.optional(),
        cursor: idParam.optional(),
      }),
    }),
  },
  async ({ ctx, input: { query } }) => {
    const filter = { id: query.list_id, text: query.q, after: query.cursor, limit: PAGE };
    const found = await listLists(ctx.em, ctx.tenant, filter);
    return {
      lists: found.map((list) => ({
        ...list,
        has_more_members: list.members === MOST_COUNTED,
        archive_url: list.has_archive ? archiveUrl(ctx.vault, ctx.env.PUBLIC_URL, list.id) : null,
      })),
      next_cursor: found[PAGE - 1]?.id ?? null,
    };
  },
);

const archive = consoleMutation(
  { role: "EDITOR", input: bodyOf(z.strictObject({ list_id: idParam, is_on: z.boolean() })) },
  async ({ ctx, input: { body } }) => {
    await updateList(ctx.em, body.list_id, { hasArchive: body.is_on });
    return body;
  },
);

/** For choices. */
const allLists = consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) => {
  const found = await ctx.em.find(List, {}, { fields: ["name", "optin"], orderBy: { id: "asc" } });
  return found.map(({ id, name, optin }) => ({ id, name, optin })).sort(byName);
});

/** For choices. */
const segments = consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) =>
  (await readSegments(ctx.em)).map(({ id, name }) => ({ id, name })).sort(byName),
);

/** Of more conditions than a row of a list has room for, none are told. */
const MAX_CONDITIONS_SHOWN = 2_000;

const listedSegments = consoleQuery({ role: "VIEWER", input: noInput }, async ({ ctx }) =>
  (await readSegments(ctx.em))
    .map(({ id, name, conditions, updatedAt }) => ({
      ...{ id, name, updated_at: updatedAt.toISOString() },
      conditions: JSON.stringify(conditions).length > MAX_CONDITIONS_SHOWN ? null : conditions,
    }))
    .sort(byName),
);

const segment = consoleQuery(
  { role: "VIEWER", input: z.strictObject({ params: segmentParams }) },
  async ({ ctx, input: { params } }) => ({
    ...segmentRecord(await readSegment(ctx.em, params.segmentId)),
    used_by: await readSegmentUse(ctx.em, ctx.tenant, params.segmentId),
  }),
);

const createSegmentRoute = consoleMutation({ role: "EDITOR", input: bodyOf(segmentBody) }, async ({ ctx, input }) =>
  segmentRecord(await createSegment(ctx.em, ctx.tenant, input.body)),
);

const updateSegmentRoute = consoleMutation(
  { role: "EDITOR", input: z.strictObject({ params: segmentParams, body: segmentBody }) },
  async ({ ctx, input: { params, body } }) =>
    segmentRecord(await updateSegment(ctx.em, ctx.tenant, params.segmentId, body)),
);

const deleteSegmentRoute = consoleMutation(
  { role: "EDITOR", input: z.strictObject({ params: segmentParams }) },
  async ({ ctx, input: { params } }) => {
    await deleteSegment(ctx.em, params.segmentId);
    return { id: params.segmentId, deleted: true };
  },
);

/** Not a query: conditions may be longer than a URL. */
const countSegment = consoleMutation(
  { role: "VIEWER", input: bodyOf(z.strictObject({ conditions: z.unknown() })), ownCommit: true, isHeavy: true },
  ({ ctx, input }) => countConditions(ctx.em, ctx.tenant, input.body.conditions),
);

const fieldUse = consoleQuery({ role: "VIEWER", input: z.strictObject({ query: fieldBody }) }, ({ ctx, input }) =>
  readFieldUse(ctx.em, ctx.tenant, input.query.name),
);

const createFieldRoute = consoleMutation(
  { role: "EDITOR", input: bodyOf(fieldBody.extend({ type: z.enum(CONTACT_FIELD_TYPES) })) },
  async ({ ctx, input: { body } }) => {
    await createField(ctx.em, ctx.tenant, body.name, body.type);
    return body;
  },
);

const deleteFieldRoute = consoleMutation(
  { role: "EDITOR", input: bodyOf(fieldBody), ownCommit: true },
  async ({ ctx, input: { body } }) => ({ contacts: await deleteField(ctx.em, ctx.tenant, body.name) }),
);

/** Opts a subscriber out of the list, and suppresses their address. */
const unsubscribe = consoleMutation(
  { role: "EDITOR", input: z.strictObject({ params: membershipParams }) },
  async ({ ctx, input: { params } }) => {
    await unsubscribeMember(ctx.em, ctx.tenant, params.listId, params.subscriberId);
    return {};
  },
);

/** An erased address is refused. */
const noteConsent = consoleMutation(
  { role: "EDITOR", input: bodyOf(z.strictObject({ email: address, tracking_consent: givenConsent.unwrap() })) },
  async ({ ctx, input: { body } }) => {
    await refuseErased(ctx.em, ctx.vault, ctx.tenant, body.email);
    const given = { email: body.email, ...body.tracking_consent };
    await setConsents(ctx.em, ctx.vault, ctx.tenant, [given], "MEMBER");
    return { email: body.email };
  },
);

export const audienceRouter = router({
  noteConsent,
  unsubscribe,
  search,
  people,
  suppressed,
  enrolments,
  history,
  subscriptionProofs,
  lists,
  archive,
  allLists,
  segments,
  listedSegments,
  segment,
  createSegment: createSegmentRoute,
  updateSegment: updateSegmentRoute,
  deleteSegment: deleteSegmentRoute,
  countSegment,
  fieldUse,
  createField: createFieldRoute,
  deleteField: deleteFieldRoute,
});
