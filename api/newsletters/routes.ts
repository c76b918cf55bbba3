import { z } from "zod";
import { BROADCAST_STATUSES, Newsletter } from "../../db/entities/send.ts";
import { kysely } from "../../db/orm.ts";
import {
  checkTemplates,
  createDraft,
  deleteDraft,
  readListIds,
  readNewsletter,
  targetsOf,
  updateDraft,
} from "../../domain/newsletters.ts";
import { readCounts } from "../../domain/sends/counts.ts";
import { defineList } from "../rest/list.ts";
import { impact, ok, route, router, updateImpact } from "../rest/route.ts";
import { presentNewsletter, presentWithRecipients } from "./present.ts";
import {
  deletedNewsletter,
  newsletter,
  newsletterBody,
  newsletterParams,
  newsletterPatch,
  newsletterWithRecipients,
} from "./schema.ts";

const newsletters = defineList({
  table: "newsletters",
  sorts: ["updated_at", "created_at"],
  updatedSince: true,
  filters: { status: z.enum(BROADCAST_STATUSES).optional() },
  largeColumn: "body",
});

const create = route({
  method: "POST",
  path: "/newsletters",
  status: 201,
  scope: "newsletters:write",
  readScope: "newsletters:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Draft a newsletter",
  errors: ["rate_limit_exceeded", "resource_limit_reached"],
})
  .input(z.strictObject({ body: newsletterBody }))
  .output(newsletter)
  .before(({ ctx, input }) => checkTemplates(ctx.tenant, input.body))
  .mutation(async ({ ctx, input }) => {
    const { from_email: fromEmail, from_name: fromName, ...rest } = input.body;
    const draft = await createDraft(ctx.em, ctx.tenant, { ...rest, fromEmail, fromName }, ctx.env.MAX_NEWSLETTERS);
    return ok(presentNewsletter(draft, []), { impact: impact({ would_create: 1 }) });
  });

const page = route({
  method: "GET",
  path: "/newsletters",
  scope: "newsletters:read",
  summary: "List the newsletters",
})
  .input(z.strictObject({ query: newsletters.query }))
  .output(z.array(newsletter))
  .query(({ ctx, input }) => {
    let rows = kysely(ctx.em)
      .selectFrom("newsletters")
      .selectAll("newsletters")
      .select(targetsOf("newsletters").as("list_ids"));
    const { status } = input.query;
    if (status) rows = rows.where("status", "=", status);
    return newsletters.pageEntities(ctx, input.query, rows, Newsletter, (letter, row) =>
      presentNewsletter(letter, row.list_ids),
    );
  });

const retrieve = route({
  method: "GET",
  path: "/newsletters/{newsletterId}",
  scope: "newsletters:read",
  summary: "Retrieve a newsletter with the states of its recipients",
})
  .input(z.strictObject({ params: newsletterParams }))
  .output(newsletterWithRecipients)
  .query(async ({ ctx, input }) => {
    const letter = await readNewsletter(ctx.em, input.params.newsletterId);
    const lists = await readListIds(ctx.em, letter.id);
    const counts = letter.sendId ? await readCounts(ctx.em, ctx.tenant, letter.sendId) : null;
    return ok(presentWithRecipients(letter, lists, counts));
  });

const update = route({
  method: "PATCH",
  path: "/newsletters/{newsletterId}",
  scope: "newsletters:write",
  readScope: "newsletters:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Change a draft",
  errors: ["rate_limit_exceeded", "resource_state_invalid"],
})
  .input(z.strictObject({ params: newsletterParams, body: newsletterPatch }))
  .output(newsletter)
  .before(({ ctx, input }) => checkTemplates(ctx.tenant, input.body))
  .mutation(async ({ ctx, input }) => {
    const { from_email: fromEmail, from_name: fromName, ...rest } = input.body;
    const patch = { ...rest, fromEmail, fromName };
    const { record, isChanged } = await updateDraft(ctx.em, input.params.newsletterId, patch);
    const lists = await readListIds(ctx.em, record.id);
    return ok(presentNewsletter(record, lists), { impact: updateImpact(record.id, isChanged) });
  });

const remove = route({
  method: "DELETE",
  path: "/newsletters/{newsletterId}",
  scope: "newsletters:write",
  readScope: "newsletters:read",
  dryRun: true,
  summary: "Delete a draft",
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: newsletterParams }))
  .output(deletedNewsletter)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.newsletterId;
    await deleteDraft(ctx.em, id);
    return ok({ object: "newsletter", id, deleted: true }, { impact: impact({ would_delete: 1, affected_ids: [id] }) });
  });

export const newslettersRouter = router({ create, page, retrieve, update, remove });
