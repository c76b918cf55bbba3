import { z } from "zod";
import { exampleId } from "../../domain/ids.ts";
import { address, idOf, name } from "../fields.ts";
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

const FROM_EMAIL = {
  description: "The address in From. The sending account must be allowed to use it.",
  examples: ["news@example.com"],
};

const { subject, from_name: fromName, body } = contentFields();
const fromEmail = address.nullable().meta(FROM_EMAIL);

/** A draft may be incomplete: its send-preview is refused until it is complete. */
export const newsletterBody = z.strictObject({
  name,
  subject: subject.default(null),
  from_email: fromEmail.default(null),
  from_name: fromName.default(null),
  body: body.default(null),
});

export const newsletterPatch = z
  .strictObject({ name, subject, from_email: fromEmail, from_name: fromName, body })
  .partial();

const { name: shownName, subject: shownSubject, from_name: shownFromName, body: shownBody } = shownContent();
const { status, status_reason, send_id, ...progress } = shownProgress;

const listIds = (ofWhat: string) =>
  z.array(z.string()).meta({ description: `Ids of the lists that ${ofWhat}.`, examples: [[exampleId("list")]] });

export const newsletter = z
  .object({
    object: z.literal("newsletter"),
    id: idOf("newsletter"),
    name: shownName,
    subject: shownSubject,
    from_email: z.string().nullable().meta(FROM_EMAIL),
    from_name: shownFromName,
    body: shownBody,
    status,
    status_reason,
    lists: listIds("it targets; they are set in the app, or by a key that is made for a list"),
    send_id,
    ...progress,
  })
  .meta({ id: "Newsletter", description: "A one-off mail to the subscribers of lists." });

/** A newsletter with the number of its recipients in each state. */
export const newsletterWithRecipients = newsletter
  .extend({ recipients: recipientStates })
  .meta({ id: "NewsletterWithRecipients", description: "A newsletter with its recipients by state." });

export const newsletterSendPreview = z
  .object({
    object: z.literal("newsletter_send_preview"),
    id: idOf("send"),
    newsletter_id: idOf("newsletter", "The id of the newsletter."),
    recipients: previewRecipients(
      "not_opted_in",
      "Addresses on the targeted lists, and in the segment that narrows them, if one is set in the app.",
      "no confirmed subscription",
    ),
    lists: listIds("are mailed"),
    ...previewCost,
    from_address: senderAddress.describe("The address in From."),
    sending_account_address: senderAddress.describe("The address of the sending account."),
    ...previewConfirmation("sendNewsletter"),
  })
  .meta({
    id: "NewsletterSendPreview",
    description: "The plan of a send: its recipients, its cost and the token to confirm it.",
  });

export const newsletterSend = z
  .object({
    object: z.literal("newsletter_send"),
    id: idOf("send"),
    newsletter_id: idOf("newsletter", "The id of the newsletter."),
    ...sendFields,
  })
  .meta({ id: "NewsletterSend", description: "A confirmed send." });
