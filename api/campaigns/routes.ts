import { z } from "zod";
import { BROADCAST_STATUSES, Campaign } from "../../db/entities/send.ts";
import { defineList, MAX_PAGE_BYTES } from "../rest/list.ts";
import { route, router } from "../rest/route.ts";
import { commandRouter } from "../sends/commands.ts";
import { draftRouter } from "../sends/drafts.ts";
import { recipientsRoute } from "../sends/recipients.ts";
import { sendRouter } from "../sends/routes.ts";
import { sizeText } from "../units.ts";
import { campaignRecord, presentPreview, presentSend, wholeCampaignRecord } from "./present.ts";
import {
  campaign,
  campaignBody,
  campaignPatch,
  campaignSend,
  campaignSendPreview,
  campaignWithRecipients,
} from "./schema.ts";

const campaigns = defineList({
  table: "campaigns",
  sorts: ["updated_at", "created_at"],
  updatedSince: true,
  filters: { status: z.enum(BROADCAST_STATUSES).optional().describe("Only campaigns with this status.") },
  largeColumn: "body",
});

const page = route({
  method: "GET",
  path: "/campaigns",
  scope: "campaigns:read",
  largeAnswer: true,
  operationId: "listCampaigns",
  summary: "List the campaigns",
  description: `Pages through the campaigns of the team, each with its body. A page ends before its records exceed ${sizeText(MAX_PAGE_BYTES)}, so it may hold fewer campaigns than \`limit\` and have more after it.`,
})
  .input(z.strictObject({ query: campaigns.query }))
  .output(z.array(campaign))
  .query(({ ctx, input }) => campaigns.pageRecords(ctx, input.query, { record: campaignRecord }));

const kind = {
  ...({ type: "campaign", noun: "Campaign" } as const),
  entity: Campaign,
  shown: { schema: campaign, record: campaignRecord },
};

export const campaignsRouter = router({
  page,
  drafts: draftRouter({
    ...kind,
    limit: (env) => env.MAX_CAMPAIGNS,
    setInApp: "Its segment, its sending accounts and its send days",
    body: campaignBody,
    patch: campaignPatch,
    whole: { schema: campaignWithRecipients, record: wholeCampaignRecord },
  }),
  commands: commandRouter(kind),
  recipients: recipientsRoute({ ...kind, personScope: "contacts:read" }),
  sends: sendRouter({
    ...kind,
    changes:
      "a contact comes into the segment or leaves it, an address becomes invalid or valid, a suppression arrives, or the content or a sending account changes",
    previewErrors: ["filter_unsupported"],
    preview: { schema: campaignSendPreview, present: presentPreview },
    send: { schema: campaignSend, present: presentSend },
  }),
});
