import { z } from "zod";
import type { EntityManager } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createSubscriber, deleteSubscriber, updateSubscriber } from "../../domain/audience/subscribers.ts";
import { setConsents } from "../../domain/audience/tracking-consents.ts";
import { subscriberRecord } from "../../domain/webhooks/records.ts";
import { addressFilter } from "../fields.ts";
import { slotQuota } from "../quota.ts";
import { defineList } from "../rest/list.ts";
import { readRecord } from "../rest/record.ts";
import { impact, ok, route, router, updateImpact } from "../rest/route.ts";
import { wholeSubscriberRecord } from "./present.ts";
import {
  deletedSubscriber,
  subscriber,
  subscriberBody,
  subscriberParams,
  subscriberPatch,
  subscriberWithSubscriptions,
} from "./schema.ts";

const subscribers = defineList({
  table: "subscribers",
  sorts: ["updated_at", "created_at"],
  filters: { email: addressFilter },
});

const create = route("POST /subscribers", {
  status: 201,
  scope: "subscribers:write",
  ownCommit: true,
  operationId: "createSubscriber",
  summary: "Create a subscriber, on no list yet",
  description:
    "Creates a subscriber, who is on no list yet. The address is trimmed and lower-cased. An address that the team has already is 409 `resource_already_exists`: change that subscriber with `PATCH`. An address that neither a contact nor a subscriber has yet takes one of the plan's contact slots; without one left it is 402 `quota_exceeded`.",
  errors: ["quota_exceeded", "resource_already_exists"],
})
  .input(z.strictObject({ body: subscriberBody }))
  .output(subscriber)
  .mutation(async ({ ctx, input }) => {
    const { email, first_name: firstName, last_name: lastName, tracking_consent: consent } = input.body;
    const person = { email, firstName, lastName };
    const make = async (em: EntityManager) => {
      await setConsents(em, ctx.vault, ctx.tenant, consent ? [{ email, ...consent }] : [], "API");
      return createSubscriber(em, ctx.vault, ctx.tenant, person, ctx.idempotency);
    };
    const { record, slots } = await (consent ? transaction(ctx.em, make) : make(ctx.em));
    const quota = await slotQuota(ctx, slots);
    return ok(record, { impact: impact({ would_create: 1, quota }), requestId: ctx.requestId });
  });

const page = route("GET /subscribers", {
  scope: "subscribers:read",
  operationId: "listSubscribers",
  summary: "List the subscribers",
  description: "Pages through the subscribers of the team. With `email` it finds the one with that address.",
})
  .input(z.strictObject({ query: subscribers.query }))
  .output(z.array(subscriber))
  .query(({ ctx, input }) => subscribers.pageRecords(ctx, input.query, { record: subscriberRecord }));

const retrieve = route("GET /subscribers/{subscriberId}", {
  scope: "subscribers:read",
  operationId: "retrieveSubscriber",
  summary: "Retrieve a subscriber with their subscriptions",
  description: "Answers one subscriber with the subscriptions to all lists.",
})
  .input(z.strictObject({ params: subscriberParams }))
  .output(subscriberWithSubscriptions)
  .query(async ({ ctx, input }) =>
    ok(await readRecord(ctx.em, "subscribers", wholeSubscriberRecord, input.params.subscriberId)),
  );

const update = route("PATCH /subscribers/{subscriberId}", {
  scope: "subscribers:write",
  operationId: "updateSubscriber",
  summary: "Change a subscriber",
  description:
    "Changes the fields that the body holds and leaves the others as they are. An address that another subscriber has is 409 `resource_already_exists`. A new address takes the contact slot of the one before it, unless a contact has that: then it needs a slot of its own, and without one left it is 402 `quota_exceeded`.",
  errors: ["quota_exceeded", "resource_already_exists"],
})
  .input(z.strictObject({ params: subscriberParams, body: subscriberPatch }))
  .output(subscriber)
  .mutation(async ({ ctx, input }) => {
    const { email, first_name: firstName, last_name: lastName, tracking_consent: consent } = input.body;
    const { subscriberId } = input.params;
    const patch = { email, firstName, lastName };
    const { record, isChanged, slots } = await updateSubscriber(ctx.em, ctx.vault, ctx.tenant, subscriberId, patch);
    const given = consent ? [{ email: record.email, ...consent }] : [];
    const stored = await setConsents(ctx.em, ctx.vault, ctx.tenant, given, "API");
    const quota = slots === 0 ? null : await slotQuota(ctx, slots);
    const shown = await readRecord(ctx.em, "subscribers", subscriberRecord, record.id);
    return ok(shown, { impact: { ...updateImpact(record.id, isChanged || stored.size > 0), quota } });
  });

const remove = route("DELETE /subscribers/{subscriberId}", {
  scope: "subscribers:write",
  operationId: "deleteSubscriber",
  summary: "Delete a subscriber with their subscriptions",
  description:
    "Deletes a subscriber with all subscriptions for good; the impact counts them too. A contact with the same address stays, and so do suppressions and the record of opt-outs. An opt-out of a list stays as a hash of the address: another subscriber with that address gets it back.",
})
  .input(z.strictObject({ params: subscriberParams }))
  .output(deletedSubscriber)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.subscriberId;
    const subscriptions = await deleteSubscriber(ctx.em, ctx.vault, ctx.tenant, id);
    const effect = { would_delete: 1 + subscriptions, affected_ids: [id] };
    return ok({ object: "subscriber", id, deleted: true }, { impact: impact(effect) });
  });

export const subscribersRouter = router({ create, page, retrieve, update, remove });
