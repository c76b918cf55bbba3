import { createPublicKey, verify } from "node:crypto";
import { z } from "zod";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import { bounceFinding } from "./provider-bounce.ts";
import { MAIL_FIELD } from "./providers.ts";
import type { ReportFinding } from "./record.ts";
import { eventReader, type Finding, forged, type ReportSource, readEvents, refuseOld } from "./source.ts";

/**
 * https://www.twilio.com/docs/sendgrid/for-developers/tracking-events/event. `@sendgrid/eventwebhook` brings elliptic curves
 * of its own, where Node has them.
 */
const SIGNATURE_HEADER = "x-twilio-email-event-webhook-signature";
const TIMESTAMP_HEADER = "x-twilio-email-event-webhook-timestamp";

/** SendGrid repeats a batch for 24 hours, maybe with its first signature; one more hour is for clocks. */
const MAX_AGE_SECONDS = 25 * 3_600;

const event = z.object({
  event: z.string(),
  /** In seconds. */
  timestamp: z.number().nullish().catch(null),
  /** Of an open: by Apple's Mail Privacy Protection. */
  sg_machine_open: z.boolean().nullish().catch(null),
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

function findingOf(event: Event): Finding {
  switch (event.event) {
    case "bounce":
      return bounceOf(event);
    case "dropped":
      return { kind: "dropped_by_provider", suppressAs: DROPPED.get(event.reason ?? "") };
    case "spamreport":
      return { kind: "complaint" };
    case "open":
      if (!event.sg_machine_open || event.timestamp == null) return undefined;
      return { machine: "opened", at: event.timestamp * 1_000 };
    default:
      return undefined;
  }
}

/** Complaints have no `smtp-id`, and mails of a sender that SendGrid has not authenticated have another one. */
const IDS = [[MAIL_FIELD], ["smtp-id"]];

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
    refuseOld(timestamp, MAX_AGE_SECONDS);
    if (!isSigned({ body, timestamp, signature }, publicKey)) {
      throw forged("The signature is not that of the webhook's public key.");
    }
    return readEvents(body);
  },

  parse: eventReader(IDS, event, findingOf),
};
