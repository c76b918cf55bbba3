import { sql } from "kysely";
import { z } from "zod";
import { DELIVERY_STATUSES } from "../../db/entities/webhook.ts";
import { kysely } from "../../db/orm.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import {
  checkPatch,
  checkRegistration,
  createEndpoint,
  deleteEndpoint,
  endpointRows,
  readEndpoint,
  updateEndpoint,
} from "../../domain/webhooks/endpoints.ts";
import { replayDelivery } from "../../domain/webhooks/replay-delivery.ts";
import { CONTACT_SCOPES, carriesContactData } from "../../domain/webhooks/subscription.ts";
import { nextProbeAt } from "../../domain/webhooks/waiting.ts";
import { defineList } from "../rest/list.ts";
import { impact, ok, route, router } from "../rest/route.ts";
import { presentDelivery, presentEventType, presentWebhook } from "./present.ts";
import {
  deletedWebhook,
  delivery,
  deliveryParams,
  eventType,
  MAX_EVENT_LENGTH,
  newWebhook,
  webhook,
  webhookBody,
  webhookParams,
  webhookPatch,
} from "./schema.ts";

const webhooks = defineList({
  table: "webhook_endpoints",
  sorts: ["updated_at", "created_at"],
  updatedSince: true,
  filters: {
    active: z.stringbool({ truthy: ["true"], falsy: ["false"], case: "sensitive" }).optional(),
    event: z.string().max(MAX_EVENT_LENGTH).optional(),
  },
});
const deliveries = defineList({
  table: "webhook_deliveries",
  sorts: ["created_at"],
  sortable: false,
  filters: { status: z.enum(DELIVERY_STATUSES).optional() },
  walkedFilter: "status",
  largeColumn: "response_body",
});

const page = route({
  method: "GET",
  path: "/webhooks",
  scope: "webhooks:read",
  summary: "List the webhook endpoints that were registered through the API",
})
  .input(z.strictObject({ query: webhooks.query }))
  .output(z.array(webhook))
  .query(({ ctx, input }) => {
    const { active, event } = input.query;
    let rows = endpointRows(ctx.em).where("webhook_endpoints.origin", "=", "API");
    if (active !== undefined) rows = rows.where("webhook_endpoints.active", "=", active);
    if (event !== undefined) rows = rows.where(sql<boolean>`${event} = any(webhook_endpoints.events)`);
    return webhooks.page(ctx, input.query, rows, presentWebhook);
  });

const create = route({
  method: "POST",
  path: "/webhooks",
  status: 201,
  scope: "webhooks:write",
  readScope: "webhooks:read",
  idempotency: "optional",
  secret: true,
  dryRun: true,
  summary: "Register a webhook endpoint; its secret is shown this once",
  errors: ["resource_limit_reached"],
})
  .input(z.strictObject({ body: webhookBody }))
  .output(newWebhook)
  .before(({ ctx, input }) => checkRegistration(ctx.access, input.body, ctx.checkWebhookUrl))
  .mutation(async ({ ctx, input }) => {
    const registration = { ...ctx.tenant, origin: "API", apiVersion: ctx.access.caller.apiVersion } as const;
    const { endpoint, secret } = await createEndpoint(ctx.em, ctx.vault, registration, input.body);
    const neededScopes = carriesContactData(endpoint.events) ? CONTACT_SCOPES : undefined;
    return ok({ ...presentWebhook(endpoint), secret }, { impact: impact({ would_create: 1 }), neededScopes });
  });

const catalogue = route({
  method: "GET",
  path: "/webhooks/events",
  scope: "webhooks:read",
  summary: "List the events that an endpoint can subscribe to",
})
  .input(z.strictObject({}))
  .output(z.array(eventType))
  .query(async () => ok(EVENT_NAMES.map(presentEventType), { meta: { has_more: false, next_cursor: null } }));

const retrieve = route({
  method: "GET",
  path: "/webhooks/{webhookId}",
  scope: "webhooks:read",
  summary: "Retrieve a webhook endpoint",
})
  .input(z.strictObject({ params: webhookParams }))
  .output(webhook)
  .query(async ({ ctx, input }) => ok(presentWebhook(await readEndpoint(ctx.em, ctx.tenant, input.params.webhookId))));

const update = route({
  method: "PATCH",
  path: "/webhooks/{webhookId}",
  scope: "webhooks:write",
  readScope: "webhooks:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Change, stop or re-activate a webhook endpoint",
})
  .input(z.strictObject({ params: webhookParams, body: webhookPatch }))
  .output(webhook)
  .before(({ ctx, input }) => checkPatch(ctx.em, ctx.access, input.params.webhookId, input.body, ctx.checkWebhookUrl))
  .mutation(async ({ ctx, input }) => {
    const changed = await updateEndpoint(ctx.em, ctx.vault, ctx.access, input.params.webhookId, input.body);
    // A key without these scopes changes only what needs none; for another one it is not known whether they were needed.
    const holdsOne = CONTACT_SCOPES.some((scope) => ctx.access.scopes.includes(scope));
    return ok(presentWebhook(changed), {
      impact: impact({ would_update: 1, affected_ids: [changed.id] }),
      neededScopes: holdsOne && (input.body.events || input.body.url) ? CONTACT_SCOPES : undefined,
    });
  });

const remove = route({
  method: "DELETE",
  path: "/webhooks/{webhookId}",
  scope: "webhooks:write",
  readScope: "webhooks:read",
  dryRun: true,
  summary: "Delete a webhook endpoint with its delivery log",
})
  .input(z.strictObject({ params: webhookParams }))
  .output(deletedWebhook)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.webhookId;
    await deleteEndpoint(ctx.em, id);
    return ok(
      { object: "webhook_endpoint", id, deleted: true },
      { impact: impact({ would_delete: 1, affected_ids: [id] }) },
    );
  });

const log = route({
  method: "GET",
  path: "/webhooks/{webhookId}/deliveries",
  scope: "webhooks:read",
  summary: "List the attempts to deliver to a webhook endpoint",
})
  .input(z.strictObject({ params: webhookParams, query: deliveries.query }))
  .output(z.array(delivery))
  .query(async ({ ctx, input }) => {
    const { id } = await readEndpoint(ctx.em, ctx.tenant, input.params.webhookId);
    const rows = kysely(ctx.em)
      .selectFrom("webhook_deliveries")
      .selectAll("webhook_deliveries")
      .select(nextProbeAt("webhook_deliveries").as("next_probe_at"))
      .where("webhook_deliveries.webhook_id", "=", id);
    return deliveries.page(ctx, input.query, rows, presentDelivery);
  });

const replay = route({
  method: "POST",
  path: "/webhooks/{webhookId}/deliveries/{deliveryId}/replay",
  status: 202,
  scope: "webhooks:write",
  readScope: "webhooks:read",
  idempotency: "required",
  dryRun: true,
  summary: "Deliver an event to a webhook endpoint once more",
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: deliveryParams }))
  .output(delivery)
  .mutation(async ({ ctx, input }) => {
    const { webhookId, deliveryId } = input.params;
    const queued = await replayDelivery(ctx.em, ctx.tenant, webhookId, deliveryId);
    return ok(presentDelivery(queued), { impact: impact({ would_create: 1 }) });
  });

export const webhooksRouter = router({ page, create, catalogue, retrieve, update, remove, log, replay });
