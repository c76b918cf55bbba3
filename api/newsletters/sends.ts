import { z } from "zod";
import { requireApiKey } from "../../domain/access/access.ts";
import { creditUsage } from "../../domain/credits.ts";
import { ApiError } from "../../domain/errors.ts";
import { type IdempotencyHandle, readAnswer } from "../../domain/idempotency.ts";
import type { ArmedSend } from "../../domain/sends/confirm.ts";
import { checkConfirm } from "../../domain/sends/confirm-refusals.ts";
import { checkDraft, readPreview, resolvePreview, tokenFacts } from "../../domain/sends/preview.ts";
import type { SendResource } from "../../domain/sends/resource.ts";
import { confirmationToken, TOKEN_LIFETIME_SECONDS } from "../../domain/sends/token.ts";
import type { RequestContext } from "../context.ts";
import { idParamOf, impact, ok, paragraphs, route, router } from "../rest/route.ts";
import { previewIdFor, runSendUpdate } from "../sends/send-updates.ts";
import { durationText } from "../units.ts";
import { presentPreview, presentSend } from "./present.ts";
import { newsletterSend, newsletterSendPreview } from "./schema.ts";

const newsletter = (id: string): SendResource => ({ type: "newsletter", id });

const params = z.strictObject({ newsletterId: idParamOf("newsletter", "The id of the newsletter.") });

/** The claim on the Idempotency-Key; the routes here require the header. */
function claimOf({ idempotency }: RequestContext): IdempotencyHandle {
  if (!idempotency) throw new ApiError("idempotency_key_required");
  return idempotency;
}

/** A preview is remembered by reference: a replay reads its row and makes the token anew. */
interface PreviewFacts {
  newsletterId: string;
  previewId: string;
}

/** @throws {ApiError} `confirmation_stale` when the preview's row was deleted since */
async function showPreview({ em, tenant, vault }: RequestContext, { newsletterId, previewId }: PreviewFacts) {
  const row = await readPreview(em, tenant, newsletter(newsletterId), previewId);
  if (!row) throw new ApiError("confirmation_stale", "The preview has expired; make a new send-preview.");
  return presentPreview(row, confirmationToken(vault, tokenFacts(row)));
}

const sendPreview = route({
  method: "POST",
  path: "/newsletters/{newsletterId}/send-preview",
  scope: "newsletters:send",
  idempotency: "required",
  dryRun: true,
  dryRunScope: "newsletters:read",
  recall: (ctx, facts) => showPreview(ctx, facts as PreviewFacts),
  operationId: "previewNewsletterSend",
  tag: "Newsletters",
  summary: "Resolve the recipients of a newsletter, and get the token that confirms its send",
  description: paragraphs(
    "The first of the two calls that send a newsletter. It sends nothing and reserves nothing: it runs every check of the send, resolves the recipients, and answers how many there are, what the send costs, and a token that confirms this very plan.",
    `The token is valid for ${durationText(TOKEN_LIFETIME_SECONDS)}, for one send and for this API key alone. It is void as soon as the plan changes: when a subscriber joins or leaves a targeted list, a suppression or an opt-out arrives, or the content or the sending account changes.`,
    "A dry run answers the same checks and counts, and no token.",
  ),
  links: {
    sendNewsletter: {
      description: "Confirm this preview",
      parameters: { newsletterId: "$response.body#/data/newsletter_id" },
      requestBody: { confirmation_token: "$response.body#/data/confirmation/token" },
    },
  },
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
  .workflow(async ({ ctx, input }) => {
    const { em, tenant, access, temporal } = ctx;
    const { newsletterId } = input.params;
    const resource = newsletter(newsletterId);
    if (ctx.dryRun) return dryRunPreview(ctx, resource);

    const key = requireApiKey(access, "newsletters:send");
    await checkDraft(em, tenant, resource, key);
    const previewId = previewIdFor(claimOf(ctx));
    await runSendUpdate(temporal, {
      name: "preview",
      tenant,
      resource,
      previewId,
      updateId: `preview/${ctx.requestId}`,
      args: { apiKeyId: key.id },
    });
    const facts: PreviewFacts = { newsletterId, previewId };
    return ok(await showPreview(ctx, facts), { facts });
  });

/** The same plan and the same gates, with no row and no token. */
async function dryRunPreview({ em, tenant, access }: RequestContext, resource: SendResource) {
  const { plan } = await resolvePreview(em, tenant, resource, requireApiKey(access, "newsletters:send"));
  const { eligible } = plan.counts;
  const { granted, reserved, consumed, available } = await creditUsage(em, tenant);
  const stands = { used: reserved + consumed, limit: granted, remaining: available };
  const quota = { kind: "email_credits", amount: eligible, ...stands } as const;
  return { impact: impact({ affected_count: eligible, affected_ids: [resource.id], quota }) };
}

/**
 * The token may be missing here: the confirm asks for it, behind the refusals that come first. Clients write an unset one
 * as null or "".
 */
const confirmationBody = z
  .strictObject({
    confirmation_token: z
      .string()
      .nullish()
      .meta({
        description: "`confirmation.token` of the preview.",
        examples: ["send_01m7zh34n8e49vnbt7e64rvp0c.Zm9yLWV4YW1wbGUtYW5kLW5vdC1hLXJlYWwtb25lLTE"],
      }),
  })
  .optional();

const send = route({
  method: "POST",
  path: "/newsletters/{newsletterId}/send",
  status: 202,
  scope: "newsletters:send",
  idempotency: "required",
  recall: (_ctx, facts) => presentSend(facts as ArmedSend),
  operationId: "sendNewsletter",
  tag: "Newsletters",
  summary: "Confirm a preview with its token: reserve credits and schedule the send",
  description: paragraphs(
    "The second of the two calls that send a newsletter. It verifies the token of the preview, runs every check again, resolves the recipients again and refuses if anything changed. Then it reserves the credits and schedules the newsletter: it starts within about a minute, or on the next allowed day where the newsletter restricts them.",
    "This cannot be undone through the API. It takes no `dry_run`: the preview is that.",
  ),
  links: {
    retrieveNewsletter: {
      description: "Watch the send",
      parameters: { newsletterId: "$response.body#/data/newsletter_id" },
    },
  },
  errors: [
    "send_not_permitted",
    "confirmation_required",
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
  .input(z.strictObject({ params, body: confirmationBody }))
  .output(newsletterSend)
  .workflow(async ({ ctx, input }) => {
    const { em, tenant, access, vault, temporal } = ctx;
    const resource = newsletter(input.params.newsletterId);
    const token = input.body?.confirmation_token ?? null;
    const key = requireApiKey(access, "newsletters:send");
    const check = () => checkConfirm(em, { tenant, resource, key, token, vault });
    const previewId = await check();
    const idempotency = claimOf(ctx);
    await runSendUpdate(temporal, {
      name: "confirm",
      tenant,
      resource,
      previewId,
      updateId: `confirm/${ctx.requestId}`,
      args: { apiKeyId: key.id, idempotency },
      recheck: async () => {
        await check();
      },
    });
    // The activity wrote it in the transaction that armed the send, perhaps for an earlier request.
    const remembered = await readAnswer(em, idempotency);
    if (!remembered) throw new ApiError("service_unavailable", undefined, { retryAfterSeconds: 1 });
    const facts: ArmedSend = JSON.parse(remembered.payload);
    return ok(presentSend(facts), { facts, requestId: remembered.requestId });
  });

export const newsletterSendsRouter = router({ sendPreview, send });
