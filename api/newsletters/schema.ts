import { z } from "zod";
import { BROADCAST_STATUSES } from "../../db/entities/send.ts";
import { address, deleted, MAX_NAME_LENGTH, name, oneLine, timestamp } from "../fields.ts";
import { idParam } from "../rest/route.ts";

/** Longest line RFC 5322 allows; a subject is one. */
export const MAX_SUBJECT_LENGTH = 998;
export const MAX_BODY_BYTES = 1024 * 1024;
/** As JSON, which writes a quote in two bytes and a control character in six: an answer with it stays within 2 MiB. */
const MAX_BODY_JSON_BYTES = (2 * 1024 - 256) * 1024;

export const newsletterParams = z.strictObject({ newsletterId: idParam });

const subject = oneLine(MAX_SUBJECT_LENGTH).nullable();
const fromName = oneLine(MAX_NAME_LENGTH).nullable();
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
  .nullable();

/** A draft may be incomplete: its send-preview is refused until it is complete. */
export const newsletterBody = z.strictObject({
  name,
  subject: subject.default(null),
  from_email: address.nullable().default(null),
  from_name: fromName.default(null),
  body: body.default(null),
});

export const newsletterPatch = z.strictObject({
  name: name.optional(),
  subject: subject.optional(),
  from_email: address.nullable().optional(),
  from_name: fromName.optional(),
  body: body.optional(),
});

export const newsletter = z.object({
  object: z.literal("newsletter"),
  id: z.string(),
  name: z.string(),
  subject: z.string().nullable(),
  from_email: z.string().nullable(),
  from_name: z.string().nullable(),
  body: z.string().nullable(),
  status: z.enum(BROADCAST_STATUSES),
  /** Ids of the lists it targets. */
  lists: z.array(z.string()),
  /** ISO weekdays in the team's time zone; none means any day. */
  send_days: z.array(z.int()),
  send_at: timestamp.nullable(),
  started_at: timestamp.nullable(),
  completed_at: timestamp.nullable(),
  created_at: timestamp,
  updated_at: timestamp,
});

const count = z.int();

/** A newsletter with the number of its recipients in each state. The numbers add up to `total`. */
export const newsletterWithRecipients = newsletter.extend({
  /** Null before it is confirmed. */
  recipients: z
    .object({
      total: count,
      queued: count,
      sending: count,
      sent: count,
      rejected: count,
      deferred: count,
      unknown: count,
      expired: count,
      suppressed: count,
      cancelled: count,
    })
    .nullable(),
});

const sendCap = z.object({ limit: z.int(), used_today: z.int(), remaining: z.int() });

export const newsletterSendPreview = z.object({
  object: z.literal("newsletter_send_preview"),
  id: z.string(),
  newsletter_id: z.string(),
  recipients: z.object({ total: count, not_opted_in: count, suppressed: count, eligible: count }),
  credits_required: z.int(),
  send_cap: sendCap,
  from_address: z.string(),
  sending_account_address: z.string(),
  complaint_rate: z.object({ rate: z.number(), threshold: z.number(), window_days: z.int() }),
  confirmation: z.object({ token: z.string(), expires_at: timestamp }),
});

export const newsletterSend = z.object({
  object: z.literal("newsletter_send"),
  id: z.string(),
  newsletter_id: z.string(),
  status: z.literal("SCHEDULED"),
  recipients: count,
  credits_reserved: z.int(),
  send_at: timestamp,
  send_cap: sendCap,
});

export const deletedNewsletter = deleted("newsletter");
