import { z } from "zod";
import { SUPPRESSION_REASONS } from "../../db/entities/audience.ts";
import { lookupAddress } from "../../domain/address.ts";
import { liftSuppression, type SuppressionOutcome, suppress } from "../../domain/audience/suppressions.ts";
import { suppressionRecord } from "../../domain/webhooks/records.ts";
import { addressFilter } from "../fields.ts";
import { defineList } from "../rest/list.ts";
import { readRecord } from "../rest/record.ts";
import { deleteImpact, impact, ok, paragraphs, route, router } from "../rest/route.ts";
import { numberText } from "../units.ts";
import { presentBatch, type RememberedOutcome } from "./present.ts";
import {
  addressParams,
  deletedSuppression,
  MAX_BATCH,
  suppression,
  suppressionBatch,
  suppressionBody,
  suppressionParams,
} from "./schema.ts";

const MAX_REASON_LENGTH = 200;

const suppressions = defineList({
  table: "suppressions",
  sorts: ["updated_at", "created_at"],
  filters: {
    email: addressFilter,
    reason: z
      .string()
      .max(MAX_REASON_LENGTH)
      .transform((text) => SUPPRESSION_REASONS.find((reason) => reason.toLowerCase() === text.toLowerCase()) ?? text)
      .optional()
      .meta({
        description: "Only suppressions of this reason, in any case of its letters.",
        examples: ["bounce:hard"],
      }),
  },
  ranges: { filter: "reason", values: SUPPRESSION_REASONS },
});

const page = route("GET /suppressions", {
  scope: "suppressions:read",
  operationId: "listSuppressions",
  summary: "List the suppressed addresses of the team",
  description:
    "Pages through the do-not-mail list of the team: addresses that were put there by hand, and those of bounces, complaints and opt-outs.",
})
  .input(z.strictObject({ query: suppressions.query }))
  .output(z.array(suppression))
  .query(({ ctx, input }) => suppressions.pageRecords(ctx, input.query, { record: suppressionRecord }));

/** The outcome as it may be remembered. */
const withoutErased = ({ added, alreadySuppressed, erased }: SuppressionOutcome): RememberedOutcome => ({
  added,
  alreadySuppressed: alreadySuppressed.filter((email) => !erased.includes(email)),
});

const create = route("POST /suppressions", {
  scope: "suppressions:write",
  isPatient: true,
  recall: (_ctx, facts) => presentBatch(facts as RememberedOutcome),
  operationId: "createSuppressions",
  summary: "Add addresses to the team's do-not-mail list",
  description: paragraphs(
    `Puts up to ${numberText(MAX_BATCH)} addresses on the do-not-mail list. The addresses are trimmed and lower-cased. New ones are in \`added\`; those that are on the list already are in \`already_suppressed\` and keep their reason and their \`updated_at\`, so that the same batch can be sent again. An address whose person asked for their data to be erased is in \`already_suppressed\` too, and a repetition under the Idempotency-Key leaves it out.`,
    "No contact, subscriber or subscription is changed. No `suppression.added` event is sent.",
  ),
})
  .input(z.strictObject({ body: suppressionBody }))
  .output(suppressionBatch)
  .mutation(async ({ ctx, input }) => {
    const outcome = await suppress(ctx.em, ctx.tenant, input.body.emails, input.body.reason, { vault: ctx.vault });
    // New records have no ids to name yet, and an impact names no addresses.
    return ok(presentBatch(outcome), {
      impact: impact({ would_create: outcome.added.length }),
      facts: outcome.erased.length > 0 ? withoutErased(outcome) : undefined,
    });
  });

const retrieve = route("GET /suppressions/{email}", {
  scope: "suppressions:read",
  operationId: "retrieveSuppression",
  summary: "Look up whether an address is suppressed",
  description:
    "Looks up an address on the do-not-mail list. An address that is not on it is 404 `not_found`. The address is percent-encoded in the path.",
})
  .input(z.strictObject({ params: addressParams }))
  .output(suppression)
  .query(async ({ ctx, input }) =>
    ok(await readRecord(ctx.em, "suppressions", suppressionRecord, lookupAddress(input.params.email), "email")),
  );

const remove = route("DELETE /suppressions/{suppressionId}", {
  scope: "suppressions:delete",
  operationId: "deleteSuppression",
  summary: "Delete a suppression; opt-outs per list stay",
  description: paragraphs(
    "Takes an address off the do-not-mail list, also after a bounce, a complaint or an opt-out. The record of opt-outs stays, and an opt-out from a list still holds. A bounce or a complaint that happens again puts the address back.",
    "The answer does not repeat the address.",
  ),
})
  .input(z.strictObject({ params: suppressionParams }))
  .output(deletedSuppression)
  .mutation(async ({ ctx, input }) => {
    const id = input.params.suppressionId;
    await liftSuppression(ctx.em, ctx.tenant, id);
    return ok({ object: "suppression", id, deleted: true }, { impact: deleteImpact(id) });
  });

export const suppressionsRouter = router({ page, create, retrieve, remove });
