import { z } from "zod";
import { BROADCAST_STATUSES, Newsletter } from "../../db/entities/send.ts";
import { defineList, MAX_PAGE_BYTES } from "../rest/list.ts";
import { route, router } from "../rest/route.ts";
import { commandRouter } from "../sends/commands.ts";
import { draftRouter } from "../sends/drafts.ts";
import { recipientsRoute } from "../sends/recipients.ts";
import { sendRouter } from "../sends/routes.ts";
import { sizeText } from "../units.ts";
import { newsletterRecord, presentPreview, presentSend, wholeNewsletterRecord } from "./present.ts";
import {
  newsletter,
  newsletterBody,
  newsletterPatch,
  newsletterSend,
  newsletterSendPreview,
  newsletterWithRecipients,
} from "./schema.ts";

const newsletters = defineList({
  table: "newsletters",
  sorts: ["updated_at", "created_at"],
  updatedSince: true,
  filters: { status: z.enum(BROADCAST_STATUSES).optional().describe("Only newsletters with this status.") },
  largeColumn: "body",
});

const page = route({
  method: "GET",
  path: "/newsletters",
  scope: "newsletters:read",
  largeAnswer: true,
  operationId: "listNewsletters",
  summary: "List the newsletters",
  description: `Pages through the newsletters of the team, each with its body. A page ends before its records exceed ${sizeText(MAX_PAGE_BYTES)}, so it may hold fewer newsletters than \`limit\` and have more after it.`,
})
  .input(z.strictObject({ query: newsletters.query }))
  .output(z.array(newsletter))
  .query(({ ctx, input }) => newsletters.pageRecords(ctx, input.query, { record: newsletterRecord }));

const kind = {
  ...({ type: "newsletter", noun: "Newsletter" } as const),
  entity: Newsletter,
  shown: { schema: newsletter, record: newsletterRecord },
};

export const newslettersRouter = router({
  page,
  drafts: draftRouter({
    ...kind,
    limit: (env) => env.MAX_NEWSLETTERS,
    setInApp: "Its lists and its send days",
    body: newsletterBody,
    patch: newsletterPatch,
    whole: { schema: newsletterWithRecipients, record: wholeNewsletterRecord },
  }),
  commands: commandRouter(kind),
  recipients: recipientsRoute({ ...kind, personScope: "subscribers:read" }),
  sends: sendRouter({
    ...kind,
    changes:
      "a subscriber joins or leaves a targeted list, a suppression or an opt-out arrives, or the content or the sending account changes",
    preview: { schema: newsletterSendPreview, present: presentPreview },
    send: { schema: newsletterSend, present: presentSend },
  }),
});
