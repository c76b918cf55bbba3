import { z } from "zod";
import { SUPPRESSION_REASONS, Suppression } from "../../db/entities/audience.ts";
import { kysely } from "../../db/orm.ts";
import { lookupAddress, MAX_ADDRESS_LENGTH } from "../../domain/address.ts";
import { liftSuppression, readSuppression, suppress } from "../../domain/suppressions.ts";
import { defineList } from "../rest/list.ts";
import { impact, ok, route, router } from "../rest/route.ts";
import { presentBatch, presentSuppression } from "./present.ts";
import {
  addressParams,
  deletedSuppression,
  suppression,
  suppressionBatch,
  suppressionBody,
  suppressionParams,
} from "./schema.ts";

const MAX_REASON_LENGTH = 200;

const suppressions = defineList({
  table: "suppressions",
  sorts: ["updated_at", "created_at"],
  updatedSince: true,
  filters: {
    email: z.string().max(MAX_ADDRESS_LENGTH).optional(),
    reason: z.string().max(MAX_REASON_LENGTH).optional(),
  },
  ranges: { filter: "reason", values: SUPPRESSION_REASONS },
});

const page = route({
  method: "GET",
  path: "/suppressions",
  scope: "suppressions:read",
  summary: "List the suppressed addresses of the team",
})
  .input(z.strictObject({ query: suppressions.query }))
  .output(z.array(suppression))
  .query(({ ctx, input }) => {
    let rows = kysely(ctx.em).selectFrom("suppressions").selectAll("suppressions");
    const { email, reason } = input.query;
    if (email !== undefined) rows = rows.where("email", "=", lookupAddress(email));
    if (reason !== undefined) rows = rows.where("reason", "=", reason);
    return suppressions.pageEntities(ctx, input.query, rows, Suppression, presentSuppression);
  });

const create = route({
  method: "POST",
  path: "/suppressions",
  scope: "suppressions:write",
  readScope: "suppressions:read",
  idempotency: "optional",
  dryRun: true,
  summary: "Add addresses to the team's do-not-mail list",
})
  .input(z.strictObject({ body: suppressionBody }))
  .output(suppressionBatch)
  .mutation(async ({ ctx, input }) => {
    const outcome = await suppress(ctx.em, ctx.tenant, input.body.emails, input.body.reason);
    // New records have no ids to name yet, and an impact names no addresses.
    return ok(presentBatch(outcome), { impact: impact({ would_create: outcome.added.length }) });
  });

const retrieve = route({
  method: "GET",
  path: "/suppressions/{email}",
  scope: "suppressions:read",
  summary: "Look up whether an address is suppressed",
})
  .input(z.strictObject({ params: addressParams }))
  .output(suppression)
  .query(async ({ ctx, input }) => ok(presentSuppression(await readSuppression(ctx.em, input.params.email))));

const remove = route({
  method: "DELETE",
  path: "/suppressions/{suppressionId}",
  scope: "suppressions:delete",
  readScope: "suppressions:read",
  dryRun: true,
  summary: "Delete a suppression; opt-outs per list stay",
})
  .input(z.strictObject({ params: suppressionParams }))
  .output(deletedSuppression)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.suppressionId;
    await liftSuppression(ctx.em, ctx.tenant, id);
    return ok(
      { object: "suppression", id, deleted: true },
      { impact: impact({ would_delete: 1, affected_ids: [id] }) },
    );
  });

export const suppressionsRouter = router({ page, create, retrieve, remove });
