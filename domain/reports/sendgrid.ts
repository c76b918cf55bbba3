import { createPublicKey, verify } from "node:crypto";
import { z } from "zod";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import { isObject } from "../../lib/json-object.ts";
import type { MailRef } from "../mail/links.ts";
import { mailId, readMailId } from "../mail/message-id.ts";
import { bounceFinding } from "./provider-bounce.ts";
import type { ReportFinding } from "./record.ts";
import { forged, noJson, type ReportSource, readEvent } from "./source.ts";

/**
 * https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event. `@sendgrid/eventwebhook` brings elliptic curves
 * of its own, where Node has them.
 */
const SIGNATURE_HEADER = "x-twilio-email-event-webhook-signature";
const TIMESTAMP_HEADER = "x-twilio-email-event-webhook-timestamp";

/** SendGrid repeats a batch for 24 hours, maybe with its first signature; one more hour is for clocks. */
const MAX_AGE_SECONDS = 25 * 3_600;

/** Complaints have no `smtp-id`, and mails of a sender that SendGrid has not authenticated have another one. */
const MAIL_ARGUMENT = "mailkeel_mail";

/** SendGrid gives the id back in its events, and takes the header out of the mail. */
export const sendGridHeader = (mail: MailRef): string =>
  `X-SMTPAPI: {"unique_args":{"${MAIL_ARGUMENT}":"${mailId(mail)}"}}\r\n`;

const event = z.object({
  event: z.string(),
  /** `bounce` for good, `blocked` for now. */
  type: z.string().nullish(),
  bounce_classification: z.string().nullish(),
  /** Of a bounce, the server's reply. */
  reason: z.string().nullish(),
  status: z.string().nullish().catch(null),
});

type Event = z.infer<typeof event>;

const ABOUT_THE_SENDER = new Set(["Content", "Reputation", "Frequency or Volume Too High"]);

/** About the address. Any other reason is the sender's: content, quota, header. */
const DROPPED: ReadonlyMap<string, SuppressionReason> = new Map([
  ["Bounced Address", "bounce:hard"],
  ["Invalid", "bounce:hard"],
  ["Spam Reporting Address", "bounce:complaint"],
  ["Unsubscribed Address", "UNSUBSCRIBED"],
]);

/** SendGrid calls some bounces permanent whose reply it cannot read. */
const ABOUT_THE_ADDRESS = new Set(["Invalid Address", "Unclassified", ""]);

const bounceOf = ({ type, bounce_classification: classification, reason, status }: Event): ReportFinding =>
  bounceFinding({
    reply: reason,
    status,
    isPermanent: type !== "blocked" && ABOUT_THE_ADDRESS.has(classification ?? ""),
    isSendersFault: ABOUT_THE_SENDER.has(classification ?? ""),
  });

function findingOf(event: Event): ReportFinding | undefined {
  switch (event.event) {
    case "bounce":
      return bounceOf(event);
    case "dropped":
      return { kind: "dropped_by_provider", suppressAs: DROPPED.get(event.reason ?? "") };
    case "spamreport":
      return { kind: "complaint" };
    default:
      return undefined;
  }
}

function mailOf(given: unknown): MailRef | undefined {
  const named = isObject(given) ? (given[MAIL_ARGUMENT] ?? given["smtp-id"]) : undefined;
  return typeof named === "string" ? readMailId(named) : undefined;
}

/** @param publicKey base64 of SPKI in DER */
export function isSigned(
  { body, timestamp, signature }: { body: Buffer; timestamp: string; signature: string },
  publicKey: string,
): boolean {
  const key = createPublicKey({ key: Buffer.from(publicKey, "base64"), format: "der", type: "spki" });
  return verify("sha256", Buffer.concat([Buffer.from(timestamp), body]), key, Buffer.from(signature, "base64"));
}

export const SENDGRID: ReportSource<unknown[]> = {
  async verify({ body, header }, { publicKey }) {
    const [signature = "", timestamp = ""] = [SIGNATURE_HEADER, TIMESTAMP_HEADER].map(header);
    if (publicKey == null) throw forged("The webhook has no public key yet; set it with provider:set.");
    const age = Math.abs(Date.now() / 1_000 - (/^\d{1,12}$/.test(timestamp) ? Number(timestamp) : 0));
    if (age > MAX_AGE_SECONDS) throw forged("The request is too old, or from the future.");
    if (!isSigned({ body, timestamp, signature }, publicKey)) {
      throw forged("The signature is not that of the webhook's public key.");
    }
    try {
      const events: unknown = JSON.parse(body.toString("utf8"));
      if (Array.isArray(events)) return events;
    } catch {
      // Refused below.
    }
    throw noJson();
  },

  parse: (events) => events.flatMap((given) => readEvent(mailOf(given), () => findingOf(event.parse(given)))),
};
