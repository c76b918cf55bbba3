import { z } from "zod";
import { CAMPAIGN_STATUSES } from "../../db/entities/send.ts";
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

const { status: _, status_reason, send_id, ...progress } = shownProgress;

export const campaign = z
  .object({
    object: z.literal("campaign"),
    id: idOf("campaign"),
    ...shownContent(FIELD_TAGS),
    status: z.enum(CAMPAIGN_STATUSES).meta({
      description:
        "Only a `DRAFT` can be changed, deleted or sent. A sequence is a `DRAFT`, `ACTIVE`, `PAUSED` or `STOPPED`.",
    }),
    status_reason,
    segment_id: textOrNull(
      "The id of the segment that it targets; it is set in the app. A draft whose segment is deleted has none; a campaign that was scheduled keeps it.",
      exampleId("segment"),
    ),
    account_ids: z.array(z.string()).meta({
      description: "Ids of the sending accounts that mail it; they are set in the app.",
      examples: [[exampleId("account")]],
    }),
    is_drip: z.boolean().meta({
      description: "It is a sequence of mails over time, which is changed and run in the app alone.",
      examples: [false],
    }),
    send_id,
    ...progress,
  })
  .meta({ id: "Campaign", description: "A mail to the contacts of a segment, over several sending accounts." });

const people = (description: string) => z.int().meta({ minimum: 0, description, examples: [0] });

const dripStep = z
  .object({
    id: z.string().meta({ description: "Chosen by the team.", examples: ["welcome"] }),
    wait_minutes: z.int().meta({ description: "After the step before, or after entering.", examples: [4_320] }),
    time_of_day: z
      .string()
      .nullable()
      .meta({
        description: "The next such time after the wait, in the team's time zone; null means any time.",
        examples: ["09:30"],
      }),
    send_days: z.array(z.int()).meta({
      description: "ISO weekdays, 1 for Monday, in the team's time zone; none means any day.",
      examples: [[]],
    }),
    subject: z.string().meta({ examples: ["Welcome, {{ first_name }}"] }),
    waiting: people("People for whom it is the next step."),
    sent: people("Mails that the sending account's server accepted."),
    opened: people("Mails that were opened."),
    clicked: people("Mails with a link that was followed."),
    left: people("People who left the sequence while it was the next step."),
  })
  .meta({ id: "DripStep", description: "A step of a sequence, and the people at it." });

export const campaignWithRecipients = campaign
  .extend({
    recipients: recipientStates,
    drip_steps: z.array(dripStep).meta({ description: "The steps of a sequence; else none.", examples: [[]] }),
  })
  .meta({
    id: "CampaignWithRecipients",
    description: "A campaign with its recipients by state, or a sequence with its steps.",
  });

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
