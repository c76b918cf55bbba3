import { z } from "zod";
import { ACCOUNT_PROVIDERS, ACCOUNT_STATUSES } from "../../db/entities/account.ts";
import { SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { ENROLMENT_STATES } from "../../db/entities/sequence.ts";
import type { EventObject, ObjectType } from "../../domain/webhooks/objects.ts";
import { campaign } from "../campaigns/schema.ts";
import { contact } from "../contacts/schema.ts";
import {
  confirmationFields,
  idOf,
  nullableIdOf,
  shownAddress,
  text,
  textOrNull,
  timestamp,
  timestamps,
} from "../fields.ts";
import { newsletter } from "../newsletters/schema.ts";
import { EMAIL_ID, recipient, recipientStates } from "../sends/schema.ts";
import { subscriber } from "../subscribers/schema.ts";
import { suppression } from "../suppressions/schema.ts";
import { unsubscribe } from "../unsubscribes/schema.ts";

const counts = {
  recipients: recipientStates.meta({
    description: "Recipients by state once the send has ended, which add up to `total`; null before.",
    examples: [null],
  }),
};

export const EVENT_OBJECTS = {
  contact,
  subscriber,
  subscription: z
    .object({
      object: z.literal("subscription"),
      list_id: idOf("list", "The id of the list."),
      subscriber_id: idOf("subscriber", "The id of the subscriber."),
      email: shownAddress,
      status: z.enum(SUBSCRIPTION_STATUSES).meta({ examples: ["CONFIRMED"] }),
      confirmed_at: timestamp.nullable(),
      ...confirmationFields,
      unsubscribed_at: timestamp.nullable().meta({ examples: [null] }),
      ...timestamps,
    })
    .meta({ id: "SubscriptionOfEvent", description: "A subscription as events show it; it is named by its two ids." }),
  // Without its body, which may be larger than receivers accept.
  newsletter: newsletter
    .omit({ body: true })
    .extend(counts)
    .meta({ id: "NewsletterOfEvent", description: "A newsletter as events show it: without its body." }),
  campaign: campaign
    .omit({ body: true, is_drip: true })
    .extend(counts)
    .meta({ id: "CampaignOfEvent", description: "A campaign as events show it: without its body." }),
  sequence_enrolment: z
    .object({
      object: z.literal("sequence_enrolment"),
      campaign_id: idOf("campaign", "The id of the sequence."),
      subscriber_id: nullableIdOf("subscriber", "The person in the sequence of a list."),
      contact_id: nullableIdOf("contact", "The person in the sequence of a segment.", false),
      email: shownAddress.nullable().describe("Null when the person was deleted."),
      state: z.enum(ENROLMENT_STATES).meta({ examples: ["ACTIVE"] }),
      reason: z
        .string()
        .nullable()
        .meta({ description: "Why the person LEFT, as a code; else null.", examples: [null] }),
      entered_at: timestamp,
    })
    .meta({ id: "SequenceEnrolment", description: "A person in a sequence; it is named by the ids of the two." }),
  email: recipient
    .omit({ smtp_code: true })
    .extend({ status: z.enum(["SENT", "REJECTED", "BOUNCED", "COMPLAINED"]) })
    .meta({ id: "EmailOfEvent", description: "One mail to one recipient." }),
  event: z
    .object({
      object: z.literal("event"),
      id: idOf("tracking"),
      kind: z.enum(["open", "click"]),
      email_id: text("The id of the mail.", EMAIL_ID),
      newsletter_id: nullableIdOf("newsletter", "The newsletter that the mail is of."),
      campaign_id: nullableIdOf("campaign", "The campaign that the mail is of.", false),
      email: shownAddress,
      url: textOrNull("The link that was followed, as its author wrote it; null for an open."),
      by: z
        .enum(["human", "unknown"])
        .meta({ description: "`unknown` where a program may have made the request.", examples: ["human"] }),
      created_at: timestamp,
    })
    .meta({ id: "TrackedEvent", description: "An open or a click." }),
  suppression,
  unsubscribe,
  email_account: z
    .object({
      object: z.literal("email_account"),
      id: idOf("account"),
      email: shownAddress.meta({ examples: ["news@example.com"] }),
      display_name: z.string().meta({ examples: ["Example News"] }),
      provider: z.enum(ACCOUNT_PROVIDERS).meta({ examples: ["SMTP_OTHER"] }),
      status: z.enum(ACCOUNT_STATUSES).meta({ examples: ["ERROR"] }),
      last_error: textOrNull("A code.", "login_refused"),
      last_checked_at: timestamp.nullable(),
      ...timestamps,
    })
    .meta({ id: "EmailAccountOfEvent", description: "A sending account as events show it." }),
} as const satisfies { [Type in ObjectType]: z.ZodType<EventObject<Type>> };
