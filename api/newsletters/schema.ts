import { z } from "zod";
import { BROADCAST_STATUSES } from "../../db/entities/send.ts";
import { exampleId } from "../../domain/ids.ts";
import { MERGE_TAGS } from "../../domain/mail/template.ts";
import { TOKEN_LIFETIME_SECONDS } from "../../domain/sends/token.ts";
import {
  address,
  deleted,
  idOf,
  MAX_NAME_LENGTH,
  name,
  oneLine,
  shownAddress,
  timestamp,
  timestamps,
} from "../fields.ts";
import { idParamOf } from "../rest/route.ts";
import { durationText } from "../units.ts";

/** Longest line RFC 5322 allows; a subject is one. */
export const MAX_SUBJECT_LENGTH = 998;
export const MAX_BODY_BYTES = 1024 * 1024;
/** As JSON, which writes a quote in two bytes and a control character in six: an answer with it stays within 2 MiB. */
const MAX_BODY_JSON_BYTES = (2 * 1024 - 256) * 1024;

export const newsletterParams = z.strictObject({ newsletterId: idParamOf("newsletter", "The id of the newsletter.") });

const SUBJECT = { description: "The subject, a Liquid template of one line.", examples: ["News for {{ first_name }}"] };
const FROM_EMAIL = {
  description: "The address in From. The sending account must be allowed to use it.",
  examples: ["news@example.com"],
};
const FROM_NAME = { description: "The name in From.", examples: ["Example News"] };
const BODY = {
  description: `The HTML, a Liquid template. Merge tags: ${MERGE_TAGS.map((tag) => `\`${tag}\``).join(", ")}. Every mail gets a link to unsubscribe.`,
  examples: ['<p>Hello {{ first_name }}</p><p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p>'],
};

const subject = oneLine(MAX_SUBJECT_LENGTH).nullable().meta(SUBJECT);
const fromEmail = address.nullable().meta(FROM_EMAIL);
const fromName = oneLine(MAX_NAME_LENGTH).nullable().meta(FROM_NAME);
const jsonBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
const body = z
  .string()
  .refine((html) => Buffer.byteLength(html) <= MAX_BODY_BYTES, {
    error: ({ input }) => `must be at most ${MAX_BODY_BYTES} bytes long; it has ${Buffer.byteLength(String(input))}`,
    abort: true,
  })
  .refine((html) => jsonBytes(html) <= MAX_BODY_JSON_BYTES, {
    error: ({ input }) =>
      `must be at most ${MAX_BODY_JSON_BYTES} bytes long as JSON; it has ${jsonBytes(input)}: use fewer quotes, backslashes and control characters`,
  })
  .nullable()
  .meta({ ...BODY, description: `${BODY.description} At most ${MAX_BODY_BYTES} bytes in UTF-8.` });

/** A draft may be incomplete: its send-preview is refused until it is complete. */
export const newsletterBody = z.strictObject({
  name,
  subject: subject.default(null),
  from_email: fromEmail.default(null),
  from_name: fromName.default(null),
  body: body.default(null),
});

export const newsletterPatch = z.strictObject({
  name: name.optional(),
  subject: subject.optional(),
  from_email: fromEmail.optional(),
  from_name: fromName.optional(),
  body: body.optional(),
});

export const newsletter = z
  .object({
    object: z.literal("newsletter"),
    id: idOf("newsletter"),
    name: z.string().meta({ description: "The name, for the team alone.", examples: ["November news"] }),
    subject: z.string().nullable().meta(SUBJECT),
    from_email: z.string().nullable().meta(FROM_EMAIL),
    from_name: z.string().nullable().meta(FROM_NAME),
    body: z.string().nullable().meta(BODY),
    status: z.enum(BROADCAST_STATUSES).meta({ description: "Only a `DRAFT` can be changed, deleted or sent." }),
    lists: z.array(z.string()).meta({
      description: "Ids of the lists that it targets; they are set in the app.",
      examples: [[exampleId("list")]],
    }),
    send_days: z.array(z.int()).meta({
      description: "ISO weekdays, 1 for Monday, in the team's time zone; none means any day.",
      examples: [[]],
    }),
    send_at: timestamp.nullable().meta({ description: "When it is to be sent.", examples: [null] }),
    started_at: timestamp.nullable().meta({ description: "When its first mails left.", examples: [null] }),
    completed_at: timestamp.nullable().meta({ description: "When its send ended.", examples: [null] }),
    ...timestamps,
  })
  .meta({ id: "Newsletter", description: "A one-off mail to the subscribers of lists." });

const count = z.int().meta({ minimum: 0, examples: [0] });
const recipients = z.int().meta({ minimum: 0, examples: [120] });

/** A newsletter with the number of its recipients in each state. The numbers add up to `total`. */
export const newsletterWithRecipients = newsletter
  .extend({
    recipients: z
      .object({
        total: count.describe("All recipients of the send."),
        queued: count.describe("Waiting."),
        sending: count.describe("Their mail may be leaving right now."),
        sent: count.describe("Accepted by the sending account's server."),
        rejected: count.describe("Refused for good by that server."),
        deferred: count.describe("Refused for now; tried again."),
        unknown: count.describe("The connection ended before the server's answer: their mail may have left."),
        expired: count.describe("Refused for now too often."),
        suppressed: count.describe("Left out: suppressed or opted out after the confirmation."),
        cancelled: count.describe("Left out: the send was cancelled."),
      })
      .nullable()
      .meta({
        description: "Recipients by state, which add up to `total`; null before the confirmation.",
        examples: [null],
      }),
  })
  .meta({ id: "NewsletterWithRecipients", description: "A newsletter with its recipients by state." });

const sendCap = z
  .object({
    limit: z.int().meta({ examples: [10000] }),
    used_today: z.int().meta({ examples: [0] }),
    remaining: z.int().meta({ examples: [10000] }),
  })
  .meta({ id: "SendCap", description: "Recipients that the key may mail in a UTC day, counted over its rotations." });

export const newsletterSendPreview = z
  .object({
    object: z.literal("newsletter_send_preview"),
    id: idOf("send"),
    newsletter_id: idOf("newsletter", "The id of the newsletter."),
    recipients: z
      .object({
        total: recipients.describe("Addresses on the targeted lists."),
        not_opted_in: count.describe("Left out: no confirmed subscription."),
        suppressed: count.describe("Left out: on the do-not-mail list."),
        eligible: recipients.describe("Those that get the mail: `total` less the other two."),
      })
      .describe("The recipients, after opt-ins and suppressions."),
    credits_required: recipients.describe("Email credits that the send uses; they are reserved at the confirmation."),
    send_cap: sendCap,
    from_address: shownAddress.meta({ description: "The address in From.", examples: ["news@example.com"] }),
    sending_account_address: shownAddress.meta({
      description: "The address of the sending account.",
      examples: ["news@example.com"],
    }),
    complaint_rate: z
      .object({
        rate: z.number().meta({ examples: [0.0004] }),
        threshold: z.number().meta({ examples: [0.002] }),
        window_days: z.int().meta({ examples: [30] }),
      })
      .describe("Complaints over delivered mail, as fractions. At the threshold the API sends nothing."),
    confirmation: z
      .object({
        token: z.string().meta({
          description: "Confirms this plan, once.",
          examples: ["send_01m7zh34n8e49vnbt7e64rvp0c.Zm9yLWV4YW1wbGUtYW5kLW5vdC1hLXJlYWwtb25lLTE"],
        }),
        expires_at: timestamp.describe(`${durationText(TOKEN_LIFETIME_SECONDS)} after the preview.`),
      })
      .describe("For the confirmation by `sendNewsletter`."),
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
    status: z.literal("SCHEDULED"),
    recipients: recipients.describe("Recipients of the send."),
    credits_reserved: recipients.describe("Email credits that were reserved."),
    send_at: timestamp.describe("When the send starts."),
    send_cap: sendCap,
  })
  .meta({ id: "NewsletterSend", description: "A confirmed send." });

export const deletedNewsletter = deleted("newsletter", "newsletter", "DeletedNewsletter");
