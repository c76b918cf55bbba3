import { CAMPAIGN_STATUSES, Campaign } from "../../db/entities/send.ts";
import { router } from "../rest/route.ts";
import { commandRouter } from "../sends/commands.ts";
import { draftRouter } from "../sends/drafts.ts";
import { linksRoute } from "../sends/links.ts";
import { recipientsRoute } from "../sends/recipients.ts";
import { sendRouter } from "../sends/routes.ts";
import { campaignRecord, presentPreview, presentSend, wholeCampaignRecord } from "./present.ts";
import {
  campaign,
  campaignBody,
  campaignPatch,
  campaignSend,
  campaignSendPreview,
  campaignWithRecipients,
} from "./schema.ts";

const kind = {
  ...({ type: "campaign", noun: "Campaign" } as const),
  entity: Campaign,
  shown: { schema: campaign, record: campaignRecord },
};

export const campaignsRouter = router({
  drafts: draftRouter({
    ...kind,
    statuses: CAMPAIGN_STATUSES,
    limit: (env) => env.MAX_CAMPAIGNS,
    setInApp: "Its segment, its sending accounts and its send days are set in the app.",
    body: campaignBody,
    patch: campaignPatch,
    whole: { schema: campaignWithRecipients, record: wholeCampaignRecord },
  }),
  commands: commandRouter(kind),
  links: linksRoute(kind),
  recipients: recipientsRoute({ ...kind, personScope: "contacts:read" }),
  sends: sendRouter({
    ...kind,
    changes:
      "a contact comes into the segment or leaves it, an address becomes invalid or valid, a suppression arrives, or the content or a sending account changes",
    preview: { schema: campaignSendPreview, present: presentPreview },
    send: { schema: campaignSend, present: presentSend },
  }),
});
