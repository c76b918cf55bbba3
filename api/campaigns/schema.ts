import { z } from "zod";
import { exampleId } from "../../domain/ids.ts";
import { idOf, name, textOrNull } from "../fields.ts";
import {
  contentFields,
  previewConfirmation,
  previewCost,
  previewRecipients,
  recipientStates,
  senderAddress,
  sendFields,
  shownContent,
  shownProgress,
} from "../sends/schema.ts";

/** The custom fields of contacts, as the end of the list of merge tags. */
const FIELD_TAGS = ", and `fields.NAME` for a custom field (`list_name` is empty)";

const { subject, from_name: fromName, body } = contentFields(FIELD_TAGS);

/** A draft may be incomplete: its send-preview is refused until it is complete. */
export const campaignBody = z.strictObject({
  name,
  subject: subject.default(null),
  from_name: fromName.default(null),
  body: body.default(null),
});

export const campaignPatch = z.strictObject({ name, subject, from_name: fromName, body }).partial();

const { status, status_reason, send_id, ...progress } = shownProgress;

export const campaign = z
  .object({
    object: z.literal("campaign"),
    id: idOf("campaign"),
    ...shownContent(FIELD_TAGS),
    status,
    status_reason,
    segment_id: textOrNull(
      "The id of the segment that it targets; it is set in the app. A draft whose segment is deleted has none; a campaign that was scheduled keeps it.",
      exampleId("segment"),
    ),
    account_ids: z.array(z.string()).meta({
      description: "Ids of the sending accounts that mail it; they are set in the app.",
      examples: [[exampleId("account")]],
    }),
    send_id,
    ...progress,
  })
  .meta({ id: "Campaign", description: "A mail to the contacts of a segment, over several sending accounts." });

export const campaignWithRecipients = campaign
  .extend({ recipients: recipientStates })
  .meta({ id: "CampaignWithRecipients", description: "A campaign with its recipients by state." });

export const campaignSendPreview = z
  .object({
    object: z.literal("campaign_send_preview"),
    id: idOf("send"),
    campaign_id: idOf("campaign", "The id of the campaign."),
    recipients: previewRecipients("invalid", "Contacts of the targeted segment.", "no valid address"),
    ...previewCost,
    from_addresses: z.array(senderAddress).describe("The addresses in From, one for each sending account."),
    sending_account_address: senderAddress.describe("The address of the first sending account."),
    sending_account_addresses: z.array(senderAddress).describe("The addresses of all sending accounts."),
    ...previewConfirmation("sendCampaign"),
  })
  .meta({
    id: "CampaignSendPreview",
    description: "The plan of a send: its recipients, its cost and the token to confirm it.",
  });

export const campaignSend = z
  .object({
    object: z.literal("campaign_send"),
    id: idOf("send"),
    campaign_id: idOf("campaign", "The id of the campaign."),
    ...sendFields,
  })
  .meta({ id: "CampaignSend", description: "A confirmed send." });
