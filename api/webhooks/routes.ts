import { sql } from "kysely";
import { z } from "zod";
import { DELIVERY_STATUSES, isFailure } from "../../db/entities/webhook.ts";
import { ofTenant } from "../../db/orm.ts";
import { afterCommit } from "../../db/transaction.ts";
import { orNotFound } from "../../domain/errors.ts";
import { DEFAULT_PER_SECOND, MOST_AT_ONCE, REPLAYABLE, replayOfEndpoint } from "../../domain/webhooks/bulk-replay.ts";
import { EVENT_NAMES } from "../../domain/webhooks/catalogue.ts";
import {
  checkPatch,
  checkRegistration,
  createEndpoint,
  deleteEndpoint,
  endpointRow,
  endpointRows,
  updateEndpoint,
} from "../../domain/webhooks/endpoints.ts";
import { deliveryRow, deliveryRows, isFinal } from "../../domain/webhooks/log.ts";
import { replayDelivery } from "../../domain/webhooks/replay-delivery.ts";
import { DELIVERY_KEPT_DAYS } from "../../domain/webhooks/retention.ts";
import { rotateSecret } from "../../domain/webhooks/rotate.ts";
import { CONTACT_SCOPES, carriesContactData } from "../../domain/webhooks/subscription.ts";
import { queueTest, TESTS_PER_MINUTE } from "../../domain/webhooks/test-delivery.ts";
import type { RequestContext } from "../context.ts";
import { exampleRecord } from "../openapi/event-examples.ts";
import { defineList } from "../rest/list.ts";
import { readRowRecord } from "../rest/record.ts";
import { deleteImpact, impact, ok, paragraphs, route, router, updateImpact } from "../rest/route.ts";
import { deliveryRecord, presentEventType, webhookRecord } from "./present.ts";
import {
  deletedWebhook,
  delivery,
  deliveryParams,
  eventType,
  MAX_EVENT_LENGTH,
  newWebhook,
  replayBody,
  rotationBody,
  testBody,
  webhook,
  webhookBody,
  webhookParams,
  webhookPatch,
  webhookReplay,
  webhookSecret,
} from "./schema.ts";

const isOrNot = (description: string) =>
  z
    .stringbool({ truthy: ["true"], falsy: ["false"], case: "sensitive" })
    .optional()
    .meta({ type: "boolean", description, examples: [true] });

const webhooks = defineList({
  table: "webhook_endpoints",
  sorts: ["updated_at", "created_at"],
  filters: {
    active: isOrNot("Only active endpoints, or only inactive ones."),
    event: z
      .string()
      .max(MAX_EVENT_LENGTH)
      .optional()
      .meta({ description: "Only endpoints that subscribe to this event.", examples: ["unsubscribe.created"] }),
  },
  ownFilters: ["event"],
});
const deliveries = defineList({
  table: "webhook_deliveries",
  sorts: ["created_at"],
  filters: {
    status: z.enum(DELIVERY_STATUSES).optional().describe("Only deliveries with this status."),
    final: isOrNot("Only attempts with which their delivery has ended, or only the others."),
  },
  ownFilters: ["status", "final"],
  largeColumn: "response_body",
});

type Reader = Pick<RequestContext, "em" | "tenant">;

const showWebhook = ({ em, tenant }: Reader, webhookId: string) =>
  readRowRecord(em, endpointRow(em, tenant, webhookId), webhookRecord);

const showDelivery = ({ em, tenant }: Reader, webhookId: string, deliveryId: string) =>
  readRowRecord(em, deliveryRow(em, tenant, webhookId, deliveryId), deliveryRecord);

/** @throws {ApiError} `not_found` when the tenant has no such endpoint */
async function refuseMissing({ em, tenant }: Reader, webhookId: string): Promise<void> {
  orNotFound(await endpointRow(em, tenant, webhookId).executeTakeFirst());
}

const page = route("GET /webhooks", {
  scope: "webhooks:read",
  operationId: "listWebhooks",
  summary: "List the webhook endpoints that were registered through the API",
  description: "Pages through the webhook endpoints that were registered through the API, without their secrets.",
})
  .input(z.strictObject({ query: webhooks.query }))
  .output(z.array(webhook))
  .query(({ ctx, input }) =>
    webhooks.pageRecords(ctx, input.query, {
      values: { event: input.query.event },
      rows: (em, { event }) => {
        const rows = endpointRows(em).where("webhook_endpoints.origin", "=", "API");
        return event === undefined ? rows : rows.where(sql<boolean>`${event} = any(webhook_endpoints.events)`);
      },
      record: webhookRecord,
    }),
  );

const create = route("POST /webhooks", {
  status: 201,
  scope: "webhooks:write",
  secret: true,
  operationId: "createWebhook",
  summary: "Register a webhook endpoint; its secret is shown this once",
  description: paragraphs(
    "Registers a URL that gets the events it subscribes to. The answer holds the `secret` that verifies their signature; it is shown this once.",
    'The URL must be reachable from the public Internet: a host that resolves to a private or loopback address is refused. `["*"]` subscribes to every event there is now, and is stored as their names. Events with addresses of people (`contact.*`, `subscriber.*`, `subscription.*`, `email.*`, `event.tracked`, `suppression.*`, `unsubscribe.created`) need `contacts:read` or `suppressions:read` on the key besides.',
    "A team has a limit of endpoints: one more is 409 `resource_limit_reached`, on any plan.",
  ),
  errors: ["resource_limit_reached"],
})
  .input(z.strictObject({ body: webhookBody }))
  .output(newWebhook)
  .before(({ ctx, input }) => checkRegistration(ctx.access, input.body, ctx.checkWebhookUrl))
  .mutation(async ({ ctx, input }) => {
    const registration = { ...ctx.tenant, origin: "API", apiVersion: ctx.access.caller.apiVersion } as const;
    const { id, secret } = await createEndpoint(ctx.em, ctx.vault, registration, input.body);
    const shown = (await showWebhook(ctx, id)).toJSON();
    const neededScopes = carriesContactData(input.body.events) ? CONTACT_SCOPES : undefined;
    return ok({ ...shown, secret }, { impact: impact({ would_create: 1 }), neededScopes });
  });

const listEventTypes = route("GET /webhooks/events", {
  scope: "webhooks:read",
  operationId: "listWebhookEventTypes",
  summary: "List the events that an endpoint can subscribe to",
  description:
    "Answers every event that an endpoint can subscribe to, in one page. The catalogue grows; a name is never changed or reused.",
})
  .input(z.strictObject({}))
  .output(z.array(eventType))
  .query(async () => ok(EVENT_NAMES.map(presentEventType), { meta: { has_more: false, next_cursor: null } }));

const retrieve = route("GET /webhooks/{webhookId}", {
  scope: "webhooks:read",
  operationId: "retrieveWebhook",
  summary: "Retrieve a webhook endpoint",
  description: "Answers one webhook endpoint, without its secret. Of its own headers the names are shown alone.",
})
  .input(z.strictObject({ params: webhookParams }))
  .output(webhook)
  .query(async ({ ctx, input }) => ok(await showWebhook(ctx, input.params.webhookId)));

const update = route("PATCH /webhooks/{webhookId}", {
  scope: "webhooks:write",
  operationId: "updateWebhook",
  summary: "Change, stop or re-activate a webhook endpoint",
  description: paragraphs(
    "Changes the fields that the body holds and leaves the others as they are. `events` and `headers` replace the stored ones as a whole: an empty object as `headers` removes every header. A changed `url` is checked as at the registration.",
    "`active: false` stops the deliveries; `active: true` starts them again, and clears the count of failures of an endpoint that was switched off. The secret can be neither written nor read.",
  ),
})
  .input(z.strictObject({ params: webhookParams, body: webhookPatch }))
  .output(webhook)
  .before(({ ctx, input }) => checkPatch(ctx.em, ctx.access, input.params.webhookId, input.body, ctx.checkWebhookUrl))
  .mutation(async ({ ctx, input }) => {
    const { webhookId } = input.params;
    const { isChanged, switched } = await updateEndpoint(ctx.em, ctx.vault, ctx.access, webhookId, input.body);
    if (switched) {
      afterCommit(ctx.em, updateEndpoint, () =>
        ctx.log.info({ webhookId, state: switched }, `an endpoint is ${switched}`),
      );
    }
    // A key without these scopes changes only fields that need none; for another one it is not known whether they were needed.
    const holdsOne = CONTACT_SCOPES.some((scope) => ctx.access.scopes.includes(scope));
    return ok(await showWebhook(ctx, webhookId), {
      impact: updateImpact(webhookId, isChanged),
      neededScopes: holdsOne && (input.body.events || input.body.url) ? CONTACT_SCOPES : undefined,
    });
  });

const rotate = route("POST /webhooks/{webhookId}/rotate-secret", {
  scope: "webhooks:write",
  secret: true,
  operationId: "rotateWebhookSecret",
  summary: "Give a webhook endpoint a new secret, which is shown this once",
  description:
    "Gives a webhook endpoint a new `secret`, which the answer shows this once. The old one signs beside it for `overlap_hours`: deliveries then carry two `v1`. One that is older still stops at once.",
})
  .input(z.strictObject({ params: webhookParams, body: rotationBody }))
  .output(webhookSecret)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.webhookId;
    const rotated = await rotateSecret(ctx.em, ctx.vault, ctx.tenant, id, input.body.overlap_hours);
    const previous_secret_expires_at = rotated.previousExpiresAt?.toISOString() ?? null;
    return ok(
      { object: "webhook_secret", id, secret: rotated.secret, previous_secret_expires_at },
      { impact: updateImpact(id, true) },
    );
  });

const remove = route("DELETE /webhooks/{webhookId}", {
  scope: "webhooks:write",
  operationId: "deleteWebhook",
  summary: "Delete a webhook endpoint with its delivery log",
  description:
    "Deletes a webhook endpoint with its delivery log, for good. Deliveries stop within two seconds. Registering the URL again gives another secret.",
})
  .input(z.strictObject({ params: webhookParams }))
  .output(deletedWebhook)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.webhookId;
    await deleteEndpoint(ctx.em, id);
    return ok({ object: "webhook_endpoint", id, deleted: true }, { impact: deleteImpact(id) });
  });

const pageDeliveries = route("GET /webhooks/{webhookId}/deliveries", {
  scope: "webhooks:read",
  isHeavy: true,
  operationId: "listWebhookDeliveries",
  summary: "List the attempts to deliver to a webhook endpoint",
  description: `Pages through the attempts of the last ${DELIVERY_KEPT_DAYS} days to deliver events to an endpoint, newest first. Each attempt is a record of its own. The payloads are not shown.`,
})
  .input(z.strictObject({ params: webhookParams, query: deliveries.query }))
  .output(z.array(delivery))
  .query(async ({ ctx, input }) => {
    const { webhookId } = input.params;
    await refuseMissing(ctx, webhookId);
    const { status, final } = input.query;
    const failure = status !== undefined && isFailure(status) ? status : undefined;
    const values = {
      webhookId,
      ...(final ? { finalFailure: failure, failure: undefined } : { finalFailure: undefined, failure }),
      pending: status === "PENDING" || undefined,
      succeeded: status === "SUCCEEDED" || undefined,
      final: final === true && failure ? undefined : final,
    };
    return deliveries.pageRecords(ctx, input.query, {
      values,
      // Statuses that have an index of their own stand in the statement.
      rows: (em, given) => {
        let rows = deliveryRows(em).where("webhook_deliveries.webhook_id", "=", given.webhookId);
        if (given.failure) rows = rows.where("webhook_deliveries.failure", "=", given.failure);
        if (given.finalFailure) rows = rows.where("webhook_deliveries.final_failure", "=", given.finalFailure);
        // By the index of what is due: one of their own would be written by every delivery.
        if (given.pending)
          rows = rows.where(sql<boolean>`webhook_deliveries.id = any(array(select d.id from webhook_deliveries d
            where ${ofTenant(ctx.tenant, "d")} and d.webhook_id = ${given.webhookId} and d.next_attempt_at is not null and d.status = 'PENDING'))`);
        if (given.succeeded) rows = rows.where(sql<boolean>`webhook_deliveries.status = 'SUCCEEDED'`);
        if (given.final !== undefined)
          rows = rows.where(sql<boolean>`${isFinal("webhook_deliveries")} = ${given.final}`);
        return rows;
      },
      record: deliveryRecord,
    });
  });

const retrieveDelivery = route("GET /webhooks/{webhookId}/deliveries/{deliveryId}", {
  scope: "webhooks:read",
  operationId: "retrieveWebhookDelivery",
  summary: "Retrieve an attempt to deliver to a webhook endpoint",
  description: "Answers one attempt of the delivery log, without the payload of its event.",
})
  .input(z.strictObject({ params: deliveryParams }))
  .output(delivery)
  .query(async ({ ctx, input }) => {
    const { webhookId, deliveryId } = input.params;
    return ok(await showDelivery(ctx, webhookId, deliveryId));
  });

const replay = route("POST /webhooks/{webhookId}/deliveries/{deliveryId}/replay", {
  status: 202,
  scope: "webhooks:write",
  idempotency: "required",
  operationId: "replayWebhookDelivery",
  summary: "Deliver an event to a webhook endpoint once more",
  description:
    "Queues the event of a delivery once more, as a new delivery with `is_replay`. The id of the event stays the same; the timestamp and the signature are made anew. An endpoint that is switched off is 409 `resource_state_invalid`.",
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: deliveryParams }))
  .output(delivery)
  .mutation(async ({ ctx, input }) => {
    const { webhookId, deliveryId } = input.params;
    const { id } = await replayDelivery(ctx.em, ctx.tenant, webhookId, deliveryId);
    return ok(await showDelivery(ctx, webhookId, id), { impact: impact({ would_create: 1 }) });
  });

const replayMany = route("POST /webhooks/{webhookId}/replays", {
  status: 202,
  scope: "webhooks:write",
  isPatient: true,
  isHeavy: true,
  operationId: "replayWebhookDeliveries",
  summary: "Deliver many events to a webhook endpoint once more",
  description: paragraphs(
    `Queues the deliveries of a time that have ended without success once more: those with \`is_final\` and one of the \`statuses\`, the oldest first, up to ${MOST_AT_ONCE} at once. Attempts that a later one or a replay followed are left alone, so a repetition queues nothing twice.`,
    `${DEFAULT_PER_SECOND} a second are due, each at its \`next_attempt_at\`, behind the replays that wait already. A dry run counts the deliveries in \`would_create\`. An endpoint that is switched off is 409 \`resource_state_invalid\`; of one that is switched off meanwhile, those that wait become \`BLOCKED\`.`,
  ),
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: webhookParams, body: replayBody }))
  .output(webhookReplay)
  .mutation(async ({ ctx, input }) => {
    const { webhookId } = input.params;
    const { event_types: eventTypes, until = new Date(), since, statuses: given } = input.body;
    const statuses = REPLAYABLE.filter((status) => given.includes(status));
    const filter = { since, until, eventTypes, statuses };
    const { replayed, lastDueAt, hasMore } = await replayOfEndpoint(ctx.em, ctx.tenant, webhookId, filter);
    const shown = {
      webhook_id: webhookId,
      until: until.toISOString(),
      replayed,
      last_due_at: lastDueAt,
      has_more: hasMore,
    };
    return ok({ object: "webhook_replay" as const, ...shown }, { impact: impact({ would_create: replayed }) });
  });

const test = route("POST /webhooks/{webhookId}/test", {
  status: 202,
  scope: "webhooks:write",
  operationId: "testWebhook",
  summary: "Deliver the example of an event to a webhook endpoint",
  description: paragraphs(
    "Queues a delivery of the example of an event, signed like any other and with the header `X-Service-Test: true`. It stands in the delivery log; it is attempted once, and its outcome does not count towards a switch-off.",
    `The endpoint must be subscribed to the event. An inactive endpoint answers 409 \`resource_state_invalid\`; more than ${TESTS_PER_MINUTE} tests of the team a minute are 429 \`rate_limit_exceeded\`.`,
  ),
  errors: ["rate_limit_exceeded", "resource_state_invalid"],
})
  .input(z.strictObject({ params: webhookParams, body: testBody }))
  .output(delivery)
  .mutation(async ({ ctx, input }) => {
    const { webhookId } = input.params;
    const { id } = await queueTest(ctx.em, ctx.tenant, webhookId, exampleRecord, input.body.type);
    return ok(await showDelivery(ctx, webhookId, id), { impact: impact({ would_create: 1 }) });
  });

export const webhooksRouter = router({
  page,
  create,
  listEventTypes,
  retrieve,
  update,
  rotate,
  remove,
  pageDeliveries,
  retrieveDelivery,
  replay,
  replayMany,
  test,
});
