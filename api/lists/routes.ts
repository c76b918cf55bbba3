import { z } from "zod";
import { SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { BIN_DAYS } from "../../db/entities/bin.ts";
import { type EntityManager, kysely, ofTenant } from "../../db/orm.ts";
import {
  addSubscribers,
  createList,
  deleteList,
  readList,
  removeSubscriber,
  updateList,
} from "../../domain/audience/lists.ts";
import { isOf, optOut } from "../../domain/audience/opt-outs.ts";
import { defineList } from "../rest/list.ts";
import { readRecord, readRowRecord } from "../rest/record.ts";
import { deleteImpact, impact, ok, paragraphs, route, router, updateImpact } from "../rest/route.ts";
import { numberText } from "../units.ts";
import { listRecord, listSubscriberRecord, presentBatch } from "./present.ts";
import {
  deletedList,
  deletedListSubscriber,
  list,
  listBody,
  listParams,
  listPatch,
  listSubscriber,
  listSubscriberBatch,
  MAX_BATCH,
  membershipBody,
  membershipParams,
  membershipPatch,
} from "./schema.ts";

const lists = defineList({ table: "lists", sorts: ["updated_at", "created_at"] });
const subscribers = defineList({
  table: "subscriptions",
  idColumn: "subscriber_id",
  sorts: ["updated_at", "created_at"],
  filters: { status: z.enum(SUBSCRIPTION_STATUSES).optional().describe("Only subscriptions with this status.") },
  ranges: { filter: "status", values: SUBSCRIPTION_STATUSES },
});

const subscriptionsOf = (em: EntityManager, listId: string) =>
  kysely(em)
    .selectFrom("subscriptions")
    .innerJoin("subscribers", "subscribers.id", "subscriptions.subscriber_id")
    .selectAll("subscriptions")
    .select(["subscribers.email", "subscribers.email_spelling", "subscribers.first_name", "subscribers.last_name"])
    .where("subscriptions.list_id", "=", listId);

const create = route("POST /lists", {
  status: 201,
  scope: "lists:write",
  operationId: "createList",
  summary: "Create a list",
  description: paragraphs(
    "Creates an empty list. With the opt-in `SINGLE` a subscription starts `CONFIRMED`; with `DOUBLE` it starts `PENDING`, and the subscriber gets a mail that asks for a confirmation.",
    "A team has a limit of lists: one more is 409 `resource_limit_reached`.",
  ),
  errors: ["resource_limit_reached"],
})
  .input(z.strictObject({ body: listBody }))
  .output(list)
  .mutation(async ({ ctx, input }) => {
    const { id } = await createList(ctx.em, ctx.tenant, input.body, ctx.env.MAX_LISTS);
    return ok(await readRecord(ctx.em, "lists", listRecord, id), { impact: impact({ would_create: 1 }) });
  });

const page = route("GET /lists", {
  scope: "lists:read",
  operationId: "listLists",
  summary: "List the lists",
  description: "Pages through the lists of the team.",
})
  .input(z.strictObject({ query: lists.query }))
  .output(z.array(list))
  .query(({ ctx, input }) => lists.pageRecords(ctx, input.query, { record: listRecord }));

const retrieve = route("GET /lists/{listId}", {
  scope: "lists:read",
  operationId: "retrieveList",
  summary: "Retrieve a list",
  description: "Answers one list, without its subscribers.",
})
  .input(z.strictObject({ params: listParams }))
  .output(list)
  .query(async ({ ctx, input }) => ok(await readRecord(ctx.em, "lists", listRecord, input.params.listId)));

const update = route("PATCH /lists/{listId}", {
  scope: "lists:write",
  operationId: "updateList",
  summary: "Change a list",
  description:
    "Changes the fields that the body holds and leaves the others as they are. A change of `optin` applies to subscriptions that start later.",
})
  .input(z.strictObject({ params: listParams, body: listPatch }))
  .output(list)
  .mutation(async ({ ctx, input }) => {
    const { record, isChanged } = await updateList(ctx.em, input.params.listId, input.body);
    const { id } = record;
    return ok(await readRecord(ctx.em, "lists", listRecord, id), { impact: updateImpact(id, isChanged) });
  });

const remove = route("DELETE /lists/{listId}", {
  scope: "lists:write",
  isPatient: true,
  operationId: "deleteList",
  summary: "Delete a list with its subscriptions; the subscribers stay",
  description: paragraphs(
    `Deletes a list and its subscriptions. In the console, a member can restore them for ${BIN_DAYS} days. The subscribers stay, and so do suppressions and the record of opt-outs.`,
    "Drafts that target the list lose it. While a newsletter that is `SCHEDULED`, `SENDING` or `PAUSED` targets it, the answer is 409 `resource_state_invalid`.",
  ),
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: listParams }))
  .output(deletedList)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.listId;
    const subscriptions = await deleteList(ctx.em, ctx.tenant, id);
    // Only the list is named: it may have a million subscriptions, which have no ids of their own.
    const effect = { would_delete: 1 + subscriptions, affected_ids: [id] };
    return ok({ object: "list", id, deleted: true }, { impact: impact(effect) });
  });

const pageSubscribers = route("GET /lists/{listId}/subscribers", {
  scope: "lists:read",
  alsoScope: "subscribers:read",
  operationId: "listListSubscribers",
  summary: "List the subscribers of a list with the status of their subscriptions",
  description:
    "Pages through the subscribers of a list. The `id` of an item is the subscriber's; its status and timestamps are those of the subscription.",
})
  .input(z.strictObject({ params: listParams, query: subscribers.query }))
  .output(z.array(listSubscriber))
  .query(async ({ ctx, input }) => {
    const { id } = await readList(ctx.em, input.params.listId);
    return subscribers.pageRecords(ctx, input.query, {
      values: { listId: id },
      rows: (em, { listId }) => subscriptionsOf(em, listId),
      record: listSubscriberRecord,
    });
  });

const addMembers = route("POST /lists/{listId}/subscribers", {
  scope: "lists:write",
  isPatient: true,
  operationId: "addListSubscribers",
  summary: "Add subscribers to a list; an opt-out stays",
  description: paragraphs(
    `Puts up to ${numberText(MAX_BATCH)} subscribers on a list. Each id is in one of the three arrays of the answer: \`added\`, \`already_subscribed\` or, for someone who opted out of the list, \`opted_out\`. Only the person undoes an opt-out, by a confirmation.`,
    "On a list with double opt-in the new subscriptions are `PENDING`, and each subscriber gets a mail that asks for a confirmation. So does a person who opted out of the list or unsubscribed from all mail of the team, and, within the limits of such mails, one who is still `PENDING`: add such a person only when they sign up again. A running sequence of the list mails each person who comes onto it. If one id names no subscriber, none is added: 404 `not_found`, and `param` names it.",
  ),
})
  .input(z.strictObject({ params: listParams, body: membershipBody }))
  .output(listSubscriberBatch)
  .mutation(async ({ ctx, input }) => {
    const { listId } = input.params;
    const outcome = await addSubscribers(ctx.em, ctx.vault, ctx.tenant, listId, input.body.subscriber_ids);
    const { added, asked } = outcome;
    const effect = { would_create: added.length, would_update: asked.length, affected_ids: [...added, ...asked] };
    return ok(presentBatch(listId, outcome), { impact: impact(effect) });
  });

const updateMember = route("PATCH /lists/{listId}/subscribers/{subscriberId}", {
  scope: "lists:write",
  alsoScope: "subscribers:read",
  operationId: "updateListSubscriber",
  summary: "Opt a subscriber out of a list",
  description:
    "Records that a subscriber opted out of the list, for example on your own preference page. The only status that can be set is `UNSUBSCRIBED`: the person undoes an opt-out by a confirmation. Other lists and suppressions stay as they are.",
})
  .input(z.strictObject({ params: membershipParams, body: membershipPatch }))
  .output(listSubscriber)
  .mutation(async ({ ctx, input }) => {
    const { listId, subscriberId } = input.params;
    const isChanged = (await optOut(ctx.em, ctx.tenant, isOf(listId, subscriberId))) > 0;
    const row = subscriptionsOf(ctx.em, listId)
      .where(ofTenant(ctx.tenant, "subscriptions"))
      .where("subscriber_id", "=", subscriberId);
    const shown = await readRowRecord(ctx.em, row, listSubscriberRecord);
    return ok(shown, { impact: updateImpact(subscriberId, isChanged) });
  });

const removeMember = route("DELETE /lists/{listId}/subscribers/{subscriberId}", {
  scope: "lists:write",
  operationId: "removeListSubscriber",
  summary: "Remove a subscriber from a list",
  description: paragraphs(
    "Takes a subscriber off a list. The subscriber stays, with all other subscriptions.",
    "A subscription that ended by an opt-out stays as the record of it: 409 `resource_state_invalid`.",
  ),
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: membershipParams }))
  .output(deletedListSubscriber)
  .mutation(async ({ ctx, input }) => {
    const { listId, subscriberId: id } = input.params;
    await removeSubscriber(ctx.em, ctx.tenant, listId, id);
    return ok({ object: "list_subscriber", id, deleted: true }, { impact: deleteImpact(id) });
  });

export const listsRouter = router({
  create,
  page,
  retrieve,
  update,
  remove,
  pageSubscribers,
  addMembers,
  updateMember,
  removeMember,
});
