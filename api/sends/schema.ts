import { z } from "zod";
import { BROADCAST_STATUSES, RECIPIENT_STATES } from "../../db/entities/send.ts";
import { MAX_NAME_LENGTH } from "../../domain/audience/rules.ts";
import { exampleId } from "../../domain/ids.ts";
import { MAX_BODY_BYTES, MAX_SUBJECT_LENGTH } from "../../domain/sends/drafts/drafts.ts";
import { TOKEN_LIFETIME_SECONDS } from "../../domain/sends/plan/token.ts";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";
import {
  intOrNull,
  nullableIdOf,
  oneLine,
  shownAddress,
  text,
  textOrNull,
  timestamp,
  timestampOrNull,
  timestamps,
} from "../fields.ts";
import { durationText } from "../units.ts";

/*
 * The fields that newsletters and campaigns have in common, and so have their previews and sends.
 */

/** As JSON, which writes a quote in two bytes and a control character in six: an answer with it stays within 2 MiB. */
const MAX_BODY_JSON_BYTES = (2 * 1024 - 256) * 1024;

const SUBJECT = { description: "The subject, a Liquid template of one line.", examples: ["News for {{ first_name }}"] };
const FROM_NAME = { description: "The name in From.", examples: ["Example News"] };
/** @param more merge tags of the resource, as the end of the list of those of all */
const bodyMeta = (more: string) => ({
  description: `The HTML, a Liquid template. Merge tags: ${MERGE_TAGS.map((tag) => `\`${tag}\``).join(", ")}${more}. Every mail gets a link to unsubscribe.`,
  examples: ['<p>Hello {{ first_name }}</p><p><a href="{{ unsubscribe_url }}">Unsubscribe</a></p>'],
});

const jsonBytes = (value: unknown): number => Buffer.byteLength(JSON.stringify(value));
const html = z
  .string()
  .refine((text) => Buffer.byteLength(text) <= MAX_BODY_BYTES, {
    error: ({ input }) => `must be at most ${MAX_BODY_BYTES} bytes long; it has ${Buffer.byteLength(String(input))}`,
    abort: true,
  })
  .refine((text) => jsonBytes(text) <= MAX_BODY_JSON_BYTES, {
    error: ({ input }) =>
      `must be at most ${MAX_BODY_JSON_BYTES} bytes long as JSON; it has ${jsonBytes(input)}: use fewer quotes, backslashes and control characters`,
  })
  .nullable();

export const contentFields = (moreTags = "") => ({
  subject: oneLine(MAX_SUBJECT_LENGTH).nullable().meta(SUBJECT),
  from_name: oneLine(MAX_NAME_LENGTH).nullable().meta(FROM_NAME),
  body: html.meta({
    ...bodyMeta(moreTags),
    description: `${bodyMeta(moreTags).description} At most ${MAX_BODY_BYTES} bytes in UTF-8.`,
  }),
});

export const shownContent = (moreTags = "") => ({
  name: text("The name, for the team alone.", "November news"),
  subject: z.string().nullable().meta(SUBJECT),
  from_name: z.string().nullable().meta(FROM_NAME),
  body: z.string().nullable().meta(bodyMeta(moreTags)),
});

export const shownProgress = {
  status: z.enum(BROADCAST_STATUSES).meta({ description: "Only a `DRAFT` can be changed, deleted or sent." }),
  status_reason: textOrNull(
    "Why its send is paused: `paused_by_client`, or the code of a failure, or the code of each account after its id; null when an operator paused it, and in every other status.",
  ),
  send_id: textOrNull("The id of its send; null before the confirmation."),
  send_days: z.array(z.int()).meta({
    description: "ISO weekdays, 1 for Monday, in the team's time zone; none means any day.",
    examples: [[]],
  }),
  send_at: timestampOrNull("When it is to be sent; of a draft its time, which is set in the app, if it has one."),
  started_at: timestampOrNull("When its first mails left."),
  completed_at: timestampOrNull("When its send ended."),
  ...timestamps,
};

const count = z.int().meta({ minimum: 0, examples: [0] });
const recipients = z.int().meta({ minimum: 0, examples: [120] });

/** The number of recipients in each state. The numbers add up to `total`. */
export const recipientStates = z
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
  });

/** A mail is named by its place in its send. */
export const EMAIL_ID = `1.${exampleId("send")}`;

export const recipient = z
  .object({
    object: z.literal("email"),
    id: text("The left part of its Message-ID.", EMAIL_ID),
    newsletter_id: nullableIdOf("newsletter", "The newsletter that it is of."),
    campaign_id: nullableIdOf("campaign", "The campaign that it is of.", false),
    subscriber_id: nullableIdOf("subscriber", "The subscriber that it was sent to."),
    contact_id: nullableIdOf("contact", "The contact that it was sent to.", false),
    email: shownAddress,
    status: z.enum(RECIPIENT_STATES).meta({ examples: ["SENT"] }),
    reason: textOrNull("A code."),
    attempts: z.int().meta({ description: "Attempts to send it.", minimum: 0, examples: [1] }),
    updated_at: timestamp,
    smtp_code: intOrNull(
      "The code of the reply by which a server refused or deferred it, such as 550; null without one.",
    ),
  })
  .meta({ id: "Recipient", description: "One mail to one recipient, as the ledger of its send has it." });

/** The recipients of a preview that are left out for another reason than a suppression come between the others. */
export const previewRecipients = <Ineligible extends string>(ineligible: Ineligible, total: string, reason: string) =>
  z
    .object({
      total: recipients.describe(total),
      ...({ [ineligible]: count.describe(`Left out: ${reason}.`) } as Record<Ineligible, typeof count>),
      suppressed: count.describe("Left out: on the do-not-mail list."),
      eligible: recipients.describe("Those that get the mail: `total` less the two that are left out."),
      tracked: count.describe("Of `eligible`, those whose opens and clicks are counted, by their answers until now."),
    })
    .describe("The recipients, after permissions and suppressions.");

const sendCap = z
  .object({
    limit: z.int().meta({ examples: [10000] }),
    used_today: z.int().meta({ examples: [0] }),
    remaining: z.int().meta({ examples: [10000] }),
  })
  .meta({ id: "SendCap", description: "Recipients that the key may mail in a UTC day, counted over its rotations." });

export const senderAddress = shownAddress.meta({ examples: ["news@example.com"] });

export const previewCost = {
  credits_required: recipients.describe("Email credits that the send uses; they are reserved at the confirmation."),
  send_at: timestampOrNull("When the send starts; null: once it is confirmed, or when the next allowed day begins."),
  send_cap: sendCap,
};

/** The rest of every preview. @param sendOperation the operation that confirms it */
export const previewConfirmation = (sendOperation: string) => ({
  complaint_rate: z
    .object({
      rate: z.number().meta({ examples: [0.0004] }),
      threshold: z.number().meta({ examples: [0.002] }),
      window_days: z.int().meta({ examples: [30] }),
    })
    .describe("Complaints over delivered mail, as fractions. At the threshold the API sends nothing."),
  confirmation: z
    .object({
      token: text(
        "Confirms this plan, once.",
        "send_01m7zh34n8e49vnbt7e64rvp0c.Zm9yLWV4YW1wbGUtYW5kLW5vdC1hLXJlYWwtb25lLTE",
      ),
      expires_at: timestamp.describe(`${durationText(TOKEN_LIFETIME_SECONDS)} after the preview.`),
    })
    .describe(`For the confirmation by \`${sendOperation}\`.`),
});

export const sendFields = {
  status: z.literal("SCHEDULED"),
  recipients: recipients.describe("Recipients of the send."),
  credits_reserved: recipients.describe("Email credits that were reserved."),
  send_at: timestamp.describe("When the send starts."),
  send_cap: sendCap,
};
