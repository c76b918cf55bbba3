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
import { defineList, MAX_PAGE_BYTES } from "../rest/list.ts";
import { deleteImpact, impact, ok, paragraphs, route, router, updateImpact } from "../rest/route.ts";
import { sizeText } from "../units.ts";
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
  filters: { status: z.enum(BROADCAST_STATUSES).optional().describe("Only newsletters with this status.") },
  largeColumn: "body",
});

const create = route({
  method: "POST",
  path: "/newsletters",
  status: 201,
  scope: "newsletters:write",
  dryRunScope: "newsletters:read",
  idempotency: "optional",
  dryRun: true,
  operationId: "createNewsletter",
  tag: "Newsletters",
  summary: "Draft a newsletter",
  description: paragraphs(
    "Creates a newsletter, always as a `DRAFT`. A draft may be incomplete: its send-preview is refused until it is complete. Its lists and its send days are set in the app.",
    "`subject` and `body` are Liquid templates, which are checked here. A team has a limit of newsletters, sent ones among them: one more is 409 `resource_limit_reached`. While too many templates of the team wait to be checked, the answer is 429 `rate_limit_exceeded`.",
  ),
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
  largeAnswer: true,
  operationId: "listNewsletters",
  tag: "Newsletters",
  summary: "List the newsletters",
  description: `Pages through the newsletters of the team, each with its body. A page ends before its records exceed ${sizeText(MAX_PAGE_BYTES)}, so it may hold fewer newsletters than \`limit\` and have more after it.`,
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
  largeAnswer: true,
  operationId: "retrieveNewsletter",
  tag: "Newsletters",
  summary: "Retrieve a newsletter with the states of its recipients",
  description:
    "Answers one newsletter. From its confirmation on, `recipients` counts its recipients in each state; the counts add up to `total`.",
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
  dryRunScope: "newsletters:read",
  idempotency: "optional",
  dryRun: true,
  operationId: "updateNewsletter",
  tag: "Newsletters",
  summary: "Change a draft",
  description:
    "Changes the fields that the body holds and leaves the others as they are. Only a `DRAFT` changes: any other is 409 `resource_state_invalid`. A change makes the tokens of earlier previews void.",
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
  dryRunScope: "newsletters:read",
  dryRun: true,
  operationId: "deleteNewsletter",
  tag: "Newsletters",
  summary: "Delete a draft",
  description:
    "Deletes a draft for good. A newsletter that is no `DRAFT` any more stays: 409 `resource_state_invalid`.",
  errors: ["resource_state_invalid"],
})
  .input(z.strictObject({ params: newsletterParams }))
  .output(deletedNewsletter)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.newsletterId;
    await deleteDraft(ctx.em, id);
    return ok({ object: "newsletter", id, deleted: true }, { impact: deleteImpact(id) });
  });

export const newslettersRouter = router({ create, page, retrieve, update, remove });
