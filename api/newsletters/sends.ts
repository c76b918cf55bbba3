import { z } from "zod";
import { kysely } from "../../db/orm.ts";
import { ApiError, notFound } from "../../domain/errors.ts";
import { readDraft } from "../../domain/sends/draft.ts";
import {
  assertDraftReady,
  assertKeyMaySend,
  COMPLAINT_THRESHOLD,
  COMPLAINT_WINDOW_DAYS,
} from "../../domain/sends/gates.ts";
import { assertDraft, readPreview, resolvePreview } from "../../domain/sends/preview.ts";
import { Refusal } from "../../domain/sends/refusal.ts";
import type { SendResource } from "../../domain/sends/resource.ts";
import { confirmationToken, isGenuine, previewIdOf } from "../../domain/sends/token.ts";
import type { RequestContext } from "../context.ts";
import { renderSuccess } from "../rest/envelope.ts";
import { instant } from "../rest/instant.ts";
import { FinishedAnswer, idParam, impact, ok, route, router } from "../rest/route.ts";
import { previewIdFor, runSendUpdate } from "./send-workflow.ts";

const newsletter = (id: string): SendResource => ({ type: "newsletter", id });

const params = z.strictObject({ newsletterId: idParam });

const sendCap = z.object({ limit: z.int(), used_today: z.int(), remaining: z.int() });

const newsletterSendPreview = z.object({
  object: z.literal("newsletter_send_preview"),
  id: z.string(),
  newsletter_id: z.string(),
  recipients: z.object({ total: z.int(), not_opted_in: z.int(), suppressed: z.int(), eligible: z.int() }),
  credits_required: z.int(),
  send_cap: sendCap,
  from_address: z.string(),
  sending_account_address: z.string(),
  complaint_rate: z.object({ rate: z.number(), threshold: z.number(), window_days: z.int() }),
  confirmation: z.object({ token: z.string(), expires_at: z.iso.datetime() }),
});

const newsletterSend = z.object({
  object: z.literal("newsletter_send"),
  id: z.string(),
  newsletter_id: z.string(),
  status: z.literal("SCHEDULED"),
  recipients: z.int(),
  credits_reserved: z.int(),
  send_at: z.iso.datetime(),
  send_cap: sendCap,
});

type PreviewRow = NonNullable<Awaited<ReturnType<typeof readPreview>>>;

/** A preview as the client sees it; `token` is left empty where the answer is stored. */
function presentPreview(row: PreviewRow, token: string): z.infer<typeof newsletterSendPreview> {
  return {
    object: "newsletter_send_preview",
    id: row.id,
    newsletter_id: row.resource_id,
    recipients: {
      total: row.total,
      not_opted_in: row.not_opted_in,
      suppressed: row.suppressed,
      eligible: row.eligible,
    },
    credits_required: row.credits_required,
    send_cap: {
      limit: row.cap_limit,
      used_today: row.cap_used_today,
      remaining: Math.max(0, row.cap_limit - row.cap_used_today),
    },
    from_address: row.from_address,
    sending_account_address: row.account_address,
    complaint_rate: {
      rate: Number(row.complaint_rate),
      threshold: COMPLAINT_THRESHOLD,
      window_days: COMPLAINT_WINDOW_DAYS,
    },
    confirmation: { token, expires_at: instant(row.expires_at) },
  };
}

const tokenFacts = (row: PreviewRow) => ({
  previewId: row.id,
  apiKeyId: row.api_key_id,
  planDigest: row.plan_digest,
  expiresAt: new Date(row.expires_at),
});

const META = { dry_run: false };

/** The answer to a preview: once with its token, once as it is remembered, without. */
function previewAnswer({ vault, requestId }: RequestContext, row: PreviewRow): FinishedAnswer {
  const token = confirmationToken(vault, tokenFacts(row));
  return new FinishedAnswer(200, renderSuccess(requestId, presentPreview(row, token), META), {
    status: 200,
    body: renderSuccess(requestId, presentPreview(row, ""), META),
    bodyKind: "preview",
  });
}

/** A remembered preview with its token, which is made again from the preview's row. */
async function withToken({ em, tenant, vault }: RequestContext, stored: { body: string }): Promise<string> {
  const answer = JSON.parse(stored.body) as { data: z.infer<typeof newsletterSendPreview>; meta: unknown };
  const { id, newsletter_id } = answer.data;
  const row = await readPreview(em, tenant, newsletter(newsletter_id), id);
  if (!row) throw new ApiError("confirmation_stale", "This preview is long past its expiry; make a new one.");
  answer.data.confirmation.token = confirmationToken(vault, tokenFacts(row));
  return JSON.stringify(answer);
}

/** What an Idempotency-Key's claim gives; the routes here require the header. */
function heldKey({ idempotency }: RequestContext) {
  if (!idempotency) throw new ApiError("idempotency_key_required");
  return idempotency;
}

const sendPreview = route({
  method: "POST",
  path: "/newsletters/{newsletterId}/send-preview",
  scope: "newsletters:send",
  idempotency: "required",
  dryRun: true,
  readScope: "newsletters:read",
  answer: "handler",
  bodyKind: "preview",
  renderStored: withToken,
  summary: "Resolve who a newsletter would reach, and get the token that confirms it",
  errors: [
    "send_not_permitted",
    "resource_state_invalid",
    "campaign_not_ready",
    "sending_domain_unverified",
    "send_domain_not_allowed",
    "send_cap_exceeded",
    "complaint_rate_exceeded",
    "quota_exceeded",
  ],
})
  .input(z.strictObject({ params }))
  .output(newsletterSendPreview)
  .mutation(async ({ ctx, input }) => {
    const { em, tenant, access, temporal } = ctx;
    const resource = newsletter(input.params.newsletterId);
    assertKeyMaySend(access.key);
    if (ctx.dryRun) return dryRunPreview(ctx, resource);

    // What Postgres can tell by itself is answered here, with names the workflow's history must not hold.
    const draft = await readDraft(em, tenant, resource);
    assertDraft(draft);
    assertDraftReady(draft);

    const idempotency = heldKey(ctx);
    const previewId = previewIdFor(idempotency);
    await runSendUpdate(temporal, {
      name: "preview",
      tenant,
      resource,
      previewId,
      updateId: `preview/${ctx.requestId}`,
      args: { apiKeyId: access.key.id },
    });
    const row = await readPreview(em, tenant, resource, previewId);
    if (!row) throw notFound();
    return previewAnswer(ctx, row);
  });

/** The same plan and the same gates, with nothing written and no token. */
async function dryRunPreview({ em, tenant, access }: RequestContext, resource: SendResource) {
  const { plan, cap } = await resolvePreview(em, { ...tenant, resource, apiKeyId: access.key.id });
  const { eligible } = plan.counts;
  const quota = {
    kind: "email_credits",
    amount: eligible,
    used: cap.usedToday,
    limit: cap.limit,
    remaining: cap.remaining,
  } as const;
  return ok(null as never, { impact: impact({ affected_count: eligible, affected_ids: [resource.id], quota }) });
}

const send = route({
  method: "POST",
  path: "/newsletters/{newsletterId}/send",
  status: 202,
  scope: "newsletters:send",
  idempotency: "required",
  answer: "handler",
  summary: "Confirm a preview with its token: reserve credits and schedule the send",
  errors: [
    "send_not_permitted",
    "confirmation_invalid",
    "confirmation_stale",
    "resource_state_invalid",
    "send_plan_changed",
    "campaign_not_ready",
    "sending_domain_unverified",
    "send_domain_not_allowed",
    "send_cap_exceeded",
    "complaint_rate_exceeded",
    "quota_exceeded",
  ],
})
  .input(z.strictObject({ params, body: z.strictObject({ confirmation_token: z.string().min(1).max(512) }) }))
  .output(newsletterSend)
  .mutation(async ({ ctx, input }) => {
    const { tenant, access, temporal } = ctx;
    const resource = newsletter(input.params.newsletterId);
    assertKeyMaySend(access.key);
    const previewId = await checkToken(ctx, resource, input.body.confirmation_token);
    const idempotency = heldKey(ctx);
    await runSendUpdate(temporal, {
      name: "confirm",
      tenant,
      resource,
      previewId,
      updateId: `confirm/${ctx.requestId}`,
      args: { apiKeyId: access.key.id, idempotency },
      recheck: async () => {
        await checkToken(ctx, resource, input.body.confirmation_token);
      },
    });
    return storedAnswer(ctx);
  });

/**
 * What can be told of a token before anything is locked, in the order of refusals: the newsletter, the token, its use
 * and expiry, the newsletter's state, the key.
 * @returns the preview's id
 */
async function checkToken(
  { em, tenant, access, vault }: RequestContext,
  resource: SendResource,
  token: string,
): Promise<string> {
  const draft = await readDraft(em, tenant, resource);
  const previewId = previewIdOf(token);
  const row = previewId === undefined ? undefined : await readPreview(em, tenant, resource, previewId);
  if (!row || !isGenuine(vault, token, tokenFacts(row))) throw new ApiError("confirmation_invalid");
  if (row.used_at !== null) throw new Refusal("confirmation_stale", "used");
  if (row.expired) throw new Refusal("confirmation_stale", "expired");
  assertDraft(draft);
  if (row.api_key_id !== access.key.id) throw new Refusal("send_plan_changed", "other_key");
  return row.id;
}

/** The answer that the confirm wrote in the transaction of its effect. */
async function storedAnswer(ctx: RequestContext): Promise<FinishedAnswer> {
  const { teamId, environment, keyHash } = heldKey(ctx);
  const record = await kysely(ctx.em)
    .selectFrom("idempotency_records")
    .select(["status", "body"])
    .where("team_id", "=", teamId)
    .where("environment", "=", environment)
    .where("key_hash", "=", keyHash)
    .executeTakeFirst();
  if (!record?.status || !record.body) throw new ApiError("service_unavailable", undefined, { retryAfterSeconds: 1 });
  return new FinishedAnswer(record.status, record.body);
}

export const newsletterSendsRouter = router({ sendPreview, send });
