import { createPublicKey, verify } from "node:crypto";
import { z } from "zod";
import type { MailRef } from "../links.ts";
import { mailId, readMailId } from "../mail/message-id.ts";
import type { MailReport, ReportFinding } from "./record.ts";
import { forged, type ReportSource } from "./source.ts";

/**
 * SendGrid's signed event webhook:
 * https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event and
 * https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/getting-started-event-webhook-security-features. The
 * library `@sendgrid/eventwebhook` was not used: it brings elliptic curves of its own, where Node has them.
 */
const SIGNATURE_HEADER = "x-twilio-email-event-webhook-signature";
const TIMESTAMP_HEADER = "x-twilio-email-event-webhook-timestamp";

/**
 * SendGrid repeats a batch for 24 hours, and its documents do not promise a new signature; one more hour is for clocks.
 */
const MAX_AGE_SECONDS = 25 * 3_600;

/**
 * The argument that every event of a mail carries, see `sendGridHeader`: events of a recipient, complaints among them, have
 * no `smtp-id`, and those of a sender that SendGrid has not authenticated have another one.
 */
const MAIL_ARGUMENT = "mailkeel_mail";

/** The header by which SendGrid gives the id of a mail back in its events; it takes the header out of the mail. */
export const sendGridHeader = (mail: MailRef): string =>
  `X-SMTPAPI: {"unique_args":{"${MAIL_ARGUMENT}":"${mailId(mail)}"}}\r\n`;

const event = z.object({
  event: z.string(),
  "smtp-id": z.string().optional(),
  [MAIL_ARGUMENT]: z.string().optional(),
  /** Of a bounce: `bounce` for good, `blocked` for now. */
  type: z.string().optional(),
  bounce_classification: z.string().optional(),
  /** Of a mail that was dropped. */
  reason: z.string().optional(),
});

type Event = z.infer<typeof event>;

/** Classes of bounces that are about the address. */
const ABOUT_THE_ADDRESS = new Set(["Invalid Address", "Unclassified"]);
/** Classes of bounces that are about the mail or its sender. */
const ABOUT_THE_SENDER = new Set(["Content", "Reputation", "Frequency or Volume Too High"]);

/** Reasons for which a mail is dropped that are about the address: an earlier mail to it came back. */
const DROPPED: ReadonlyMap<string, ReportFinding> = new Map([
  ["Bounced Address", { kind: "bounce:hard" }],
  ["Invalid", { kind: "bounce:hard" }],
  ["Spam Reporting Address", { kind: "complaint" }],
  ["Unsubscribed Address", { kind: "bounce:soft" }],
]);

function findingOf({
  event,
  type,
  bounce_classification: classification,
  reason = "",
}: Event): ReportFinding | undefined {
  switch (event) {
    case "bounce": {
      const isHard = type === "bounce" && ABOUT_THE_ADDRESS.has(classification ?? "Unclassified");
      if (isHard) return { kind: "bounce:hard" };
      return { kind: "bounce:soft", isSendersFault: ABOUT_THE_SENDER.has(classification ?? "") };
    }
    case "dropped":
      // Any other reason is the sender's: its content, its quota, its header.
      return DROPPED.get(reason) ?? { kind: "bounce:soft", isSendersFault: true };
    case "spamreport":
      return { kind: "complaint" };
    default:
      return undefined;
  }
}

function reportOf(given: unknown): MailReport[] {
  const { data } = event.safeParse(given);
  const finding = data && findingOf(data);
  const mail = data && readMailId(data[MAIL_ARGUMENT] ?? data["smtp-id"] ?? "");
  return finding && mail ? [{ ...mail, ...finding }] : [];
}

/**
 * Whether the owner of a public key has signed a request.
 * @param publicKey base64 of SPKI in DER
 */
export function isSigned(
  { body, timestamp, signature }: { body: Buffer; timestamp: string; signature: string },
  publicKey: string,
): boolean {
  const key = createPublicKey({ key: Buffer.from(publicKey, "base64"), format: "der", type: "spki" });
  return verify("sha256", Buffer.concat([Buffer.from(timestamp), body]), key, Buffer.from(signature, "base64"));
}

/** Bounces and complaints of SendGrid. */
export const SENDGRID: ReportSource<unknown> = {
  async verify({ body, header }, { publicKey }) {
    const [signature = "", timestamp = ""] = [SIGNATURE_HEADER, TIMESTAMP_HEADER].map(header);
    if (publicKey === null) throw forged("The webhook has no public key yet; set it with provider:set.");
    const age = Math.abs(Date.now() / 1_000 - (/^\d{1,12}$/.test(timestamp) ? Number(timestamp) : 0));
    if (age > MAX_AGE_SECONDS) throw forged("The request is too old, or from the future.");
    if (!isSigned({ body, timestamp, signature }, publicKey)) {
      throw forged("The signature is not that of the webhook's public key.");
    }
    try {
      return JSON.parse(body.toString("utf8"));
    } catch {
      return [];
    }
  },

  parse: (events) => (Array.isArray(events) ? events.flatMap(reportOf) : []),
};
