import { z } from "zod";
import { List, SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { kysely } from "../../db/orm.ts";
import {
  addSubscribers,
  createList,
  deleteList,
  readList,
  removeSubscriber,
  updateList,
} from "../../domain/audience/lists.ts";
import { defineList } from "../rest/list.ts";
import { impact, ok, route, router } from "../rest/route.ts";
import { presentBatch, presentList, presentListSubscriber } from "./present.ts";
import {
  deletedList,
  deletedListSubscriber,
  list,
  listBody,
  listParams,
  listPatch,
  listSubscriber,
  listSubscriberBatch,
  membershipBody,
  membershipParams,
} from "./schema.ts";

const lists = defineList({ table: "lists", sorts: ["updated_at", "created_at"], updatedSince: true });
const subscribers = defineList({
  table: "subscriptions",
  idColumn: "subscriber_id",
  sorts: ["updated_at", "created_at"],
  updatedSince: true,
  filters: { status: z.enum(SUBSCRIPTION_STATUSES).optional() },
  ranges: { filter: "status", values: SUBSCRIPTION_STATUSES },
});

const create = route({
  method: "POST",
  path: "/lists",
  status: 201,
  scope: "lists:write",
  readScope: "lists:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Create a list",
  errors: ["resource_limit_reached"],
})
  .input(z.strictObject({ body: listBody }))
  .output(list)
  .mutation(async ({ ctx, input }) =>
    ok(presentList(await createList(ctx.em, ctx.tenant, input.body, ctx.env.MAX_LISTS)), {
      impact: impact({ would_create: 1 }),
    }),
  );

const page = route({ method: "GET", path: "/lists", scope: "lists:read", summary: "List the lists" })
  .input(z.strictObject({ query: lists.query }))
  .output(z.array(list))
  .query(({ ctx, input }) =>
    lists.pageEntities(ctx, input.query, kysely(ctx.em).selectFrom("lists").selectAll("lists"), List, presentList),
  );

const retrieve = route({ method: "GET", path: "/lists/{listId}", scope: "lists:read", summary: "Retrieve a list" })
  .input(z.strictObject({ params: listParams }))
  .output(list)
  .query(async ({ ctx, input }) => ok(presentList(await readList(ctx.em, input.params.listId))));

const update = route({
  method: "PATCH",
  path: "/lists/{listId}",
  scope: "lists:write",
  readScope: "lists:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Change a list",
})
  .input(z.strictObject({ params: listParams, body: listPatch }))
  .output(list)
  .mutation(async ({ ctx, input }) => {
    const changed = await updateList(ctx.em, input.params.listId, input.body);
    return ok(presentList(changed), { impact: impact({ would_update: 1, affected_ids: [changed.id] }) });
  });

const remove = route({
  method: "DELETE",
  path: "/lists/{listId}",
  scope: "lists:write",
  readScope: "lists:read",
  dryRun: true,
  summary: "Delete a list with its subscriptions; the subscribers stay",
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: listParams }))
  .output(deletedList)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.listId;
    await deleteList(ctx.em, ctx.tenant, id);
    return ok({ object: "list", id, deleted: true }, { impact: impact({ would_delete: 1, affected_ids: [id] }) });
  });

const pageSubscribers = route({
  method: "GET",
  path: "/lists/{listId}/subscribers",
  scope: "lists:read",
  alsoScope: "subscribers:read",
  summary: "List the subscribers of a list with the status of their subscriptions",
})
  .input(z.strictObject({ params: listParams, query: subscribers.query }))
  .output(z.array(listSubscriber))
  .query(async ({ ctx, input }) => {
    const { id } = await readList(ctx.em, input.params.listId);
    let rows = kysely(ctx.em)
      .selectFrom("subscriptions")
      .innerJoin("subscribers", "subscribers.id", "subscriptions.subscriber_id")
      .selectAll("subscriptions")
      .select(["subscribers.email", "subscribers.email_spelling", "subscribers.first_name", "subscribers.last_name"])
      .where("subscriptions.list_id", "=", id);
    const { status } = input.query;
    if (status) rows = rows.where("subscriptions.status", "=", status);
    return subscribers.page(ctx, input.query, rows, presentListSubscriber);
  });

const add = route({
  method: "POST",
  path: "/lists/{listId}/subscribers",
  scope: "lists:write",
  readScope: "lists:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Add subscribers to a list; an opt-out stays",
})
  .input(z.strictObject({ params: listParams, body: membershipBody }))
  .output(listSubscriberBatch)
  .mutation(async ({ ctx, input }) => {
    const { listId } = input.params;
    const outcome = await addSubscribers(ctx.em, ctx.tenant, listId, input.body.subscriber_ids);
    const { added } = outcome;
    return ok(presentBatch(listId, outcome), {
      impact: impact({ would_create: added.length, affected_ids: added }),
    });
  });

const removeMember = route({
  method: "DELETE",
  path: "/lists/{listId}/subscribers/{subscriberId}",
  scope: "lists:write",
  readScope: "lists:read",
  dryRun: true,
  summary: "Remove a subscriber from a list",
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: membershipParams }))
  .output(deletedListSubscriber)
  .mutation(async ({ ctx, input }) => {
    const { listId, subscriberId: id } = input.params;
    await removeSubscriber(ctx.em, ctx.tenant, listId, id);
    return ok(
      { object: "list_subscriber", id, deleted: true },
      { impact: impact({ would_delete: 1, affected_ids: [id] }) },
    );
  });

export const listsRouter = router({ create, page, retrieve, update, remove, pageSubscribers, add, removeMember });
