import { z } from "zod";
import { requireApiKey } from "../../domain/access/access.ts";
import { type IdempotencyHandle, readAnswer } from "../../domain/access/idempotency.ts";
import { ApiError, type ErrorCode } from "../../domain/errors.ts";
import type { ArmedSend } from "../../domain/sends/plan/confirm.ts";
import { checkToken } from "../../domain/sends/plan/confirm-refusals.ts";
import {
  checkDraft,
  type PreviewRow,
  readPreview,
  resolvePreview,
  tokenFacts,
} from "../../domain/sends/plan/preview.ts";
import { confirmationToken, TOKEN_LIFETIME_SECONDS } from "../../domain/sends/plan/token.ts";
import { Refusal } from "../../domain/sends/refusal.ts";
import { type ResourceType, type SendResource, sendScope } from "../../domain/sends/resource.ts";
import { readCreditUsage } from "../../domain/teams/credits.ts";
import type { RequestContext } from "../context.ts";
import { text } from "../fields.ts";
import { idParamOf, impact, ok, paragraphs, route, router } from "../rest/route.ts";
import { durationText } from "../units.ts";
import { previewIdFor, runSendUpdate } from "./send-updates.ts";

/** A kind of resource that is sent by a preview and a confirmation. */
interface SentKind<Preview extends z.ZodType, Send extends z.ZodType> {
  /** Its paths and the ids in them are named after it. */
  type: ResourceType;
  /** Its operations are named after it: `Newsletter`. */
  noun: Capitalize<ResourceType>;
  /** The changes of recipients and senders that make a token void, as a part of a sentence. */
  changes: string;
  preview: { schema: Preview; present(row: PreviewRow, token: string): z.input<Preview> };
  send: { schema: Send; present(send: ArmedSend): z.input<Send> };
}

const GATES = [
  "campaign_not_ready",
  "sending_domain_unverified",
  "send_domain_not_allowed",
  "send_cap_exceeded",
  "complaint_rate_exceeded",
  "quota_exceeded",
] as const satisfies ErrorCode[];

/** The claim on the Idempotency-Key; the routes here require the header. */
function claimOf({ idempotency }: RequestContext): IdempotencyHandle {
  if (!idempotency) throw new ApiError("idempotency_key_required");
  return idempotency;
}

/** The same handler: the reason of a refusal goes into the request's line of the log. */
const notingReason =
  <Request extends { ctx: RequestContext }, Result>(handler: (request: Request) => Promise<Result>) =>
  async (request: Request): Promise<Result> => {
    try {
      return await handler(request);
    } catch (error) {
      if (error instanceof Refusal) request.ctx.locals.reason = error.reason;
      throw error;
    }
  };

/** A preview is remembered by reference: a replay reads its row and makes the token anew. */
interface PreviewFacts {
  resource: SendResource;
  previewId: string;
}

/** The same plan and the same gates, with no row and no token. */
async function dryRunPreview({ em, tenant, access, env }: RequestContext, resource: SendResource) {
  const key = requireApiKey(access, sendScope(resource));
  const { plan } = await resolvePreview(em, tenant, resource, key, env.PREVIEW_WAIT_MS);
  const { eligible } = plan.counts;
  const { granted, reserved, consumed, available } = await readCreditUsage(em, tenant);
  const stands = { used: reserved + consumed, limit: granted, remaining: available };
  const quota = { kind: "email_credits", amount: eligible, ...stands } as const;
  return { impact: impact({ affected_count: eligible, affected_ids: [resource.id], quota }) };
}

/**
 * The token may be missing here: the confirm asks for it, behind the refusals that come first. Clients write an unset one
 * as null or "".
 */
const confirmationBody = z.strictObject({ confirmation_token: z.string().nullish() }).optional();
const documentedConfirmation = z.strictObject({
  confirmation_token: text(
    "`confirmation.token` of the preview.",
    "send_01m7zh34n8e49vnbt7e64rvp0c.Zm9yLWV4YW1wbGUtYW5kLW5vdC1hLXJlYWwtb25lLTE",
  ),
});

export function sendRouter<Preview extends z.ZodType, Send extends z.ZodType>(kind: SentKind<Preview, Send>) {
  const { type, noun } = kind;
  const idParam = `${type}Id`;
  const path = `/${type}s/{${idParam}}` as const;
  const scope = `${type}s:send` as const;
  const params = z.strictObject({ [idParam]: idParamOf(type, `The id of the ${type}.`) });
  const resourceOf = (input: { params: Record<string, string> }): SendResource => ({
    type,
    id: input.params[idParam] ?? "",
  });

  /** @throws {ApiError} `confirmation_stale` when the preview's row was deleted since */
  async function showPreview({ em, tenant, vault }: RequestContext, { resource, previewId }: PreviewFacts) {
    const row = await readPreview(em, tenant, resource, previewId);
    if (!row) throw new ApiError("confirmation_stale", "The preview has expired; make a new send-preview.");
    return kind.preview.present(row, confirmationToken(vault, tokenFacts(row)));
  }

  const sendPreview = route(`POST ${path}/send-preview`, {
    scope,
    idempotency: "required",
    isHeavy: true,
    recall: (ctx, facts) => showPreview(ctx, facts as PreviewFacts),
    operationId: `preview${noun}Send`,
    summary: `Resolve the recipients of a ${type}, and get the token that confirms its send`,
    description: paragraphs(
      `The first of the two calls that send a ${type}. It sends nothing and reserves nothing: it runs every check of the send, resolves the recipients, and answers how many there are, what the send costs, and a token that confirms this very plan.`,
      `The token is valid for ${durationText(TOKEN_LIFETIME_SECONDS)}, for one send and for this API key alone. It is void as soon as the plan changes: when ${kind.changes}.`,
      "A dry run answers the same checks and counts, and no token.",
    ),
    links: {
      [`send${noun}`]: {
        description: "Confirm this preview",
        parameters: { [idParam]: `$response.body#/data/${type}_id` },
      },
    },
    errors: ["send_not_permitted", "resource_state_invalid", "filter_unsupported", ...GATES],
  })
    .input(z.strictObject({ params }))
    .output(kind.preview.schema)
    .workflow(
      notingReason(async ({ ctx, input }) => {
        const { em, tenant, access, temporal, env } = ctx;
        const resource = resourceOf(input);
        if (ctx.dryRun) return dryRunPreview(ctx, resource);

        const key = requireApiKey(access, scope);
        await checkDraft(em, tenant, resource, key);
        const previewId = previewIdFor(claimOf(ctx));
        ctx.locals.sendId = previewId;
        await runSendUpdate(temporal, {
          name: "preview",
          waitMs: env.PREVIEW_WAIT_MS,
          tenant,
          resource,
          previewId,
          updateId: `preview/${ctx.requestId}`,
          args: { apiKeyId: key.id },
        });
        const facts: PreviewFacts = { resource, previewId };
        return ok(await showPreview(ctx, facts), { facts });
      }),
    );

  const send = route(`POST ${path}/send`, {
    status: 202,
    scope,
    idempotency: "required",
    dryRun: false,
    recall: (_ctx, facts) => kind.send.present(facts as ArmedSend),
    documentedBody: documentedConfirmation,
    operationId: `send${noun}`,
    summary: "Confirm a preview with its token: reserve credits and schedule the send",
    description: paragraphs(
      `The second of the two calls that send a ${type}. It verifies the token of the preview, runs every check again, resolves the recipients again and refuses if anything changed. Then it reserves the credits and schedules the ${type}: it starts within about a minute, or on the next allowed day where the ${type} restricts them.`,
      "This cannot be undone through the API. It takes no `dry_run`: the preview is that. A program that acts for a person, such as an assistant, calls this only after the person has seen the numbers of the preview and agreed to them.",
    ),
    links: {
      [`retrieve${noun}`]: {
        description: "Watch the send",
        parameters: { [idParam]: `$response.body#/data/${type}_id` },
      },
    },
    errors: [
      "send_not_permitted",
      "confirmation_required",
      "confirmation_invalid",
      "confirmation_stale",
      "resource_state_invalid",
      "send_plan_changed",
      ...GATES,
    ],
  })
    .input(z.strictObject({ params, body: confirmationBody }))
    .output(kind.send.schema)
    .workflow(
      notingReason(async ({ ctx, input }) => {
        const { em, tenant, access, vault, temporal, env } = ctx;
        const resource = resourceOf(input);
        const token = input.body?.confirmation_token ?? null;
        const key = requireApiKey(access, scope);
        const check = () => checkToken(em, { tenant, resource, key }, { token, vault });
        const previewId = await check();
        ctx.locals.sendId = previewId;
        const idempotency = claimOf(ctx);
        await runSendUpdate(temporal, {
          name: "confirm",
          waitMs: env.CONFIRM_WAIT_MS,
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
        if (remembered?.kind !== "facts")
          throw new ApiError("service_unavailable", undefined, { retryAfterSeconds: 1 });
        const facts: ArmedSend = JSON.parse(remembered.payload);
        return ok(kind.send.present(facts), { facts, requestId: remembered.requestId });
      }),
    );

  return router({ sendPreview, send });
}
