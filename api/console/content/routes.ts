import { z } from "zod";
import { BROADCAST_STATUSES, Newsletter, RECIPIENT_STATES, RESOURCE_TYPES } from "../../../db/entities/send.ts";
import { Team, type TrackingMode } from "../../../db/entities/team.ts";
import { transaction } from "../../../db/transaction.ts";
import { readAccess } from "../../../domain/access/key-lookup.ts";
import { keyOfSessions } from "../../../domain/access/session-key.ts";
import { MAX_ADDRESS_LENGTH } from "../../../domain/address.ts";
import { readFigures } from "../../../domain/analytics/overview.ts";
import { readFields } from "../../../domain/audience/contact-fields.ts";
import { MAX_FOUND } from "../../../domain/audience/search.ts";
import { readSegment } from "../../../domain/audience/segments/segments.ts";
import { duplicate, WRITTEN } from "../../../domain/duplicates.ts";
import { ApiError } from "../../../domain/errors.ts";
import { newId } from "../../../domain/ids.ts";
import { exportRecipients } from "../../../domain/import/export.ts";
import { isOfBrand } from "../../../domain/mail/blocks/compile.ts";
import { blockDocument } from "../../../domain/mail/blocks/schema.ts";
import { mergeTags } from "../../../domain/mail/template.ts";
import { cancelUnbegun, rescheduleSend } from "../../../domain/sends/client-commands.ts";
import { restoreVersion, saveDocument } from "../../../domain/sends/drafts/documents.ts";
import { checkDraftLinks } from "../../../domain/sends/drafts/draft-links.ts";
import { listDrafts } from "../../../domain/sends/drafts/draft-list.ts";
import {
  attachAccounts,
  attachList,
  BROADCASTS,
  type Broadcast,
  detachList,
  readBroadcast,
  updateDraft,
} from "../../../domain/sends/drafts/drafts.ts";
import { checkDraft, showDraft } from "../../../domain/sends/drafts/shown-draft.ts";
import { listVersions, readVersion } from "../../../domain/sends/drafts/versions.ts";
import { ACTIVITIES } from "../../../domain/sends/ledger/activity.ts";
import { pageRecipients } from "../../../domain/sends/ledger/recipients.ts";
import { readTime } from "../../../domain/sends/plan/send-time.ts";
import { allowTestMail, MAX_TEST_RECIPIENTS } from "../../../domain/sends/plan/test-mail.ts";
import { sendScope } from "../../../domain/sends/resource.ts";
import { newsletterUrl, readIsPublic } from "../../../domain/sends/web-pages.ts";
import { stepId } from "../../../domain/sequences/steps.ts";
import { brandOf } from "../../../domain/teams/brand.ts";
import { ratesOf } from "../../analytics/present.ts";
import type { RequestContext } from "../../context.ts";
import { idParam, router } from "../../rest/route.ts";
import { Turns } from "../../rest/turns.ts";
import { followMove } from "../../sends/commands.ts";
import { linkOfClicks } from "../../sends/recipients.ts";
import { contentFields, type recipient } from "../../sends/schema.ts";
import { previewIdFor } from "../../sends/send-updates.ts";
import { bodyOf, consoleMutation, consoleQuery } from "../procedure.ts";
import { runTestMail } from "./test-mail.ts";

const type = z.enum(RESOURCE_TYPES);
const one = { type, id: idParam };
const ofOne = z.strictObject({ query: z.strictObject(one) });
/** A draft, or a step of a sequence. */
const oneMail = { ...one, step_id: stepId.optional() };
const ofMail = z.strictObject({ query: z.strictObject(oneMail) });
const mailOf = ({ type, id, step_id: stepId }: z.output<typeof ofMail>["query"]) => ({ type, id, stepId });
const newsletterList = z.strictObject({ newsletter_id: idParam, list_id: idParam });
const sendTime = z.strictObject({
  date: z.iso.date(),
  time: z.iso.time({ precision: -1 }),
  zone: z.string().min(1).max(64),
});
const MAX_PREHEADER_LENGTH = 500;
/** ISO weekdays. */
const sendDays = z.array(z.int().min(1).max(7)).max(7);

export const written = {
  subject: contentFields().subject.optional(),
  preheader: z.string().max(MAX_PREHEADER_LENGTH).nullable(),
  blocks: blockDocument,
};

const PAGE = 50;

/** Records with the mails that were sent in all, and the rates of those that were opened and clicked. */
export async function withResults<Listed extends { id: string }>(
  { em, tenant }: RequestContext,
  records: readonly Listed[],
) {
  const ids = records.map(({ id }) => id);
  const countsOf = await readFigures(em, tenant, ids);
  return records.map((record) => {
    const counts = countsOf(record.id);
    const { opened, clicked } = ratesOf(counts);
    return { ...record, sent: counts.sent, opened, clicked };
  });
}

/** The newsletters, or the campaigns that are no sequences, without their content and with the figures of their mails. */
const page = consoleQuery(
  {
    role: "VIEWER",
    input: z.strictObject({
      query: z.strictObject({
        type,
        q: z.string().max(200).optional(),
        status: z.enum(BROADCAST_STATUSES).optional(),
        cursor: idParam.optional(),
      }),
    }),
  },
  async ({ ctx, input: { query } }) => {
    const filter = { text: query.q, status: query.status, after: query.cursor, limit: PAGE };
    const drafts = await listDrafts(ctx.em, ctx.tenant, query.type, filter);
    return { drafts: await withResults(ctx, drafts), next_cursor: drafts[PAGE - 1]?.id ?? null };
  },
);

/** The public page of a newsletter that was sent; null for any other mail. */
async function webPageOf({ em, vault, env, tenant }: RequestContext, id: string) {
  const isPublic = await readIsPublic(em, tenant, id);
  return isPublic === undefined ? null : { url: newsletterUrl(vault, env.PUBLIC_URL, id), is_public: isPublic };
}

/** The facts of a draft that the API does not show, and the merge tags that it may use. */
const settings = consoleQuery({ role: "VIEWER", input: ofOne }, async ({ ctx, input }) => {
  const { type, id } = input.query;
  const { tracking, sendAt, sendZone, segmentId, updatedAt } = await readBroadcast(ctx.em, BROADCASTS[type], id);
  const team = await ctx.em.findOneOrFail(Team, { id: ctx.tenant.teamId });
  const segment = segmentId ? await readSegment(ctx.em, segmentId) : null;
  return {
    tracking,
    send_at: sendAt?.toISOString() ?? null,
    send_zone: sendZone ?? null,
    segment_id: segmentId ?? null,
    /** Also of one that was deleted. */
    segment_name: segment?.name ?? null,
    updated_at: updatedAt.toISOString(),
    team_tracking: team.tracking as TrackingMode,
    merge_tags: mergeTags(type === "newsletter", await readFields(ctx.em, ctx.tenant)),
    web: await webPageOf(ctx, id),
  };
});

const change = consoleMutation(
  {
    role: "EDITOR",
    input: bodyOf(
      z.strictObject({
        ...one,
        send_days: sendDays.optional(),
        tracking: z.boolean().nullable().optional(),
        send_time: sendTime.nullable().optional(),
        segment_id: idParam.nullable().optional(),
      }),
    ),
  },
  async ({ ctx, input: { body } }) => {
    const days = body.send_days && [...new Set(body.send_days)].sort();
    const { send_time: time, tracking, segment_id: segmentId } = body;
    const timed = time !== undefined && { sendAt: time && readTime(time), sendZone: time?.zone ?? null };
    const patch = { sendDays: days, tracking, segmentId, ...timed };
    const { record } = await updateDraft(ctx.em, BROADCASTS[body.type], body.id, patch, ctx.edit);
    return { id: body.id, send_days: record.sendDays, tracking: record.tracking };
  },
);

/** Of a send that has not begun. */
const reschedule = consoleMutation(
  { role: "EDITOR", isPatient: true, input: bodyOf(z.strictObject({ ...one, send_time: sendTime })) },
  async ({ ctx, input: { body } }) => {
    const time = { due: readTime(body.send_time), zone: body.send_time.zone };
    followMove(ctx, await rescheduleSend(ctx.em, ctx.tenant, { type: body.type, id: body.id }, time));
    return { id: body.id };
  },
);

/** The content as its writer sees it; `blocks` is null for a draft of HTML. */
const document = consoleQuery({ role: "VIEWER", isHeavy: true, input: ofOne }, async ({ ctx, input: { query } }) => {
  const draft = await readBroadcast(ctx.em, BROADCASTS[query.type], query.id);
  const isOld = draft.blocks !== null && !isOfBrand(draft.body ?? "", await brandOf(ctx.em, ctx.tenant.teamId));
  return { ...presentContent(draft), is_of_old_brand: isOld };
});

const presentContent = ({ subject, preheader, blocks, body, updatedAt }: Broadcast) => ({
  ...{ subject, preheader, blocks, body },
  updated_at: updatedAt.toISOString(),
});

const saved = bodyOf(z.strictObject({ ...one, ...written }));
const saveBlocks = consoleMutation(
  { role: "EDITOR", isHeavy: true, ownCommit: true, audit: "daily", input: saved },
  async ({ ctx, input: { body } }) => {
    const { type, id, ...content } = body;
    const { updatedAt } = await saveDocument(ctx.em, ctx.tenant, { type, id }, content, ctx.edit);
    return { updated_at: updatedAt.toISOString(), is_of_old_brand: false };
  },
);

/** Those of the last 30 days without their content, the newest first. */
const versions = consoleQuery({ role: "VIEWER", input: ofMail }, async ({ ctx, input: { query } }) => {
  await readBroadcast(ctx.em, BROADCASTS[query.type], query.id);
  return listVersions(ctx.em, ctx.tenant, query.id, query.step_id);
});

const version = consoleQuery(
  {
    role: "VIEWER",
    isHeavy: true,
    input: z.strictObject({ query: z.strictObject({ ...oneMail, version_id: idParam }) }),
  },
  async ({ ctx, input: { query } }) => {
    const found = await readVersion(ctx.em, query.id, query.version_id, query.step_id);
    const { subject, preheader, blocks, body, writtenAt } = found;
    return { subject, preheader, blocks, body, at: writtenAt.toISOString() };
  },
);

const restore = consoleMutation(
  { role: "EDITOR", input: bodyOf(z.strictObject({ ...one, version_id: idParam })) },
  async ({ ctx, input: { body } }) => {
    const { type, id, version_id: versionId } = body;
    return presentContent(await restoreVersion(ctx.em, { type, id }, versionId, ctx.edit));
  },
);

/** Of a newsletter that was sent. */
const publish = consoleMutation(
  { role: "EDITOR", input: bodyOf(z.strictObject({ newsletter_id: idParam, is_public: z.boolean() })) },
  async ({ ctx, input: { body } }) => {
    const newsletter = await readBroadcast(ctx.em, Newsletter, body.newsletter_id);
    const web = await webPageOf(ctx, newsletter.id);
    if (!web) {
      throw new ApiError("resource_state_invalid", "Only a newsletter that was sent in LIVE may be on the web.");
    }
    ctx.em.assign(newsletter, { isPublic: body.is_public });
    await ctx.em.flush();
    return { ...web, is_public: body.is_public };
  },
);

const attach = consoleMutation({ role: "EDITOR", input: bodyOf(newsletterList) }, async ({ ctx, input: { body } }) => {
  await attachList(ctx.em, body.newsletter_id, body.list_id);
  return body;
});

const detach = consoleMutation({ role: "EDITOR", input: bodyOf(newsletterList) }, async ({ ctx, input: { body } }) => {
  await detachList(ctx.em, body.newsletter_id, body.list_id);
  return body;
});

const accounts = consoleMutation(
  { role: "EDITOR", input: bodyOf(z.strictObject({ campaign_id: idParam, account_ids: z.array(idParam).max(100) })) },
  async ({ ctx, input: { body } }) => {
    const { accountIds } = await attachAccounts(ctx.em, body.campaign_id, body.account_ids);
    return { campaign_id: body.campaign_id, account_ids: accountIds };
  },
);

/** The mail as one person would get it, or one of `SAMPLES`; its HTML is a page of its own, see `previewHandler`. */
const preview = consoleQuery(
  {
    role: "VIEWER",
    input: z.strictObject({ query: z.strictObject({ ...oneMail, person: z.string().max(320).optional() }) }),
  },
  async ({ ctx, input: { query } }) => {
    const { html: _, to, isSample, ...mail } = await showDraft(ctx.em, ctx.tenant, mailOf(query), query.person);
    const name = [to.firstName, to.lastName].filter(Boolean).join(" ");
    return { ...mail, to: { name, address: to.email }, is_sample: isSample };
  },
);

/** Before a send: for what it is refused, what could be better, and how many people lack a value. */
const check = consoleQuery({ role: "VIEWER", isHeavy: true, input: ofMail }, ({ ctx, input: { query } }) =>
  checkDraft(ctx.em, ctx.tenant, mailOf(query)),
);

/** Of a team in this process. */
const LINK_CHECKS = new Turns(1);

/** Asks the links of a draft: servers that are slow hold up the next check of links of the team, and nothing else. */
const links = consoleQuery({ role: "VIEWER", input: ofMail }, ({ ctx, input: { query } }) => {
  const { em, tenant, answering, probeUrl: probe, env } = ctx;
  const gone = new AbortController();
  answering.once("close", () => gone.abort());
  const check = () =>
    checkDraftLinks(em, tenant, mailOf(query), { probe, ownUrl: env.PUBLIC_URL, signal: gone.signal });
  return LINK_CHECKS.during(tenant.teamId, answering, check);
});

/** Of a newsletter, a campaign, a sequence, a segment or a template. */
const duplicateRoute = consoleMutation(
  { role: "EDITOR", input: bodyOf(z.strictObject({ type: z.enum(WRITTEN), id: idParam })) },
  async ({ ctx, input: { body } }) => {
    const { id, name } = await duplicate(ctx.em, ctx.tenant, body, ctx.env);
    return { id, name };
  },
);

/** Cancels a send that has not begun, for a copy of its draft. */
const editCopy = consoleMutation(
  { role: "ADMIN", isPatient: true, input: bodyOf(z.strictObject(one)) },
  async ({ ctx, input: { body } }) => {
    const { id, name } = await duplicate(ctx.em, ctx.tenant, body, ctx.env);
    followMove(ctx, await cancelUnbegun(ctx.em, ctx.tenant, { type: body.type, id: body.id }));
    return { id, name };
  },
);

/** A place in the ledger of a send. */
const after = z
  .string()
  .regex(/^\d{0,9}$/)
  .default("");

/** A recipient as the API shows it, and what they did with the mail. */
type ShownRecipient = z.input<typeof recipient> &
  Record<"first_name" | "last_name" | "opened_at" | "clicked_at", string | null> & { has_unsubscribed: boolean };

/** A page of the recipients of a send, or the first ones who have a text in their address or name. */
const recipients = consoleQuery(
  {
    role: "VIEWER",
    isHeavy: true,
    input: z.strictObject({
      query: z
        .strictObject({
          ...one,
          text: z.string().min(1).max(MAX_ADDRESS_LENGTH).optional(),
          status: z.enum(RECIPIENT_STATES).optional(),
          activity: z.enum(ACTIVITIES).optional(),
          link: idParam.optional(),
          after,
        })
        .refine(...linkOfClicks),
    }),
  },
  async ({ ctx, input: { query } }) => {
    const { text, status: state, activity, link: linkId } = query;
    const { records, next } = await pageRecipients(ctx.em, ctx.tenant, query, {
      ...{ state, activity, linkId, text, withEngagement: true },
      ...(text === undefined ? { order: "desc", limit: PAGE } : { order: "asc", limit: MAX_FOUND }),
      after: Number(query.after) || undefined,
    });
    return {
      recipients: records.map((record): ShownRecipient => JSON.parse(record.text)),
      next_after: next === undefined || text !== undefined ? null : `${next}`,
    };
  },
);

/** A page of CSV. */
const exportPage = consoleQuery(
  {
    role: "EDITOR",
    isHeavy: true,
    input: z.strictObject({
      query: z
        .strictObject({
          ...one,
          activity: z.enum(ACTIVITIES).optional(),
          link: idParam.optional(),
          after,
        })
        .refine(...linkOfClicks),
    }),
  },
  ({ ctx, input: { query } }) => {
    const { activity, link: linkId, after } = query;
    return exportRecipients(ctx.em, ctx.tenant, query, { activity, linkId, after });
  },
);

const sendTest = consoleMutation(
  {
    role: "ADMIN",
    ownCommit: true,
    input: bodyOf(z.strictObject({ ...oneMail, member_ids: z.array(idParam).min(1).max(MAX_TEST_RECIPIENTS) })),
  },
  async ({ ctx, input: { body } }) => {
    const { access, tenant, vault, temporal } = ctx;
    const resource = mailOf(body);
    const { id } = await keyOfSessions(ctx.em, vault, tenant, access.caller.memberId);
    const { caller: key } = await readAccess(ctx.em, tenant, id, sendScope(resource));
    const test = { ...tenant, resource, memberIds: [...new Set(body.member_ids)] };
    await transaction(ctx.em, (tx) => allowTestMail(tx, test, key));
    const testId = ctx.idempotency ? previewIdFor(ctx.idempotency) : newId("send");
    const outcomes = await runTestMail(temporal, { ...test, testId });
    return outcomes.map(({ memberId, ...outcome }) => ({ member_id: memberId, ...outcome }));
  },
);

export const contentRouter = router({
  page,
  settings,
  change,
  reschedule,
  document,
  saveBlocks,
  versions,
  version,
  restoreVersion: restore,
  publish,
  attachList: attach,
  detachList: detach,
  attachAccounts: accounts,
  preview,
  check,
  links,
  duplicate: duplicateRoute,
  editCopy,
  recipients,
  exportRecipients: exportPage,
  sendTest,
});
