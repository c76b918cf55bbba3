import { z } from "zod";
import type { Vault } from "../secrets/crypto.ts";
import { bounceFinding } from "./provider-bounce.ts";
import { MAIL_FIELD } from "./providers.ts";
import type { ReportFinding } from "./record.ts";
import { byPassword, eventReader, type ReportSource } from "./source.ts";

/**
 * https://postmarkapp.com/developer/webhooks/bounce-webhook and …/spam-complaint-webhook: one event a request, which Postmark
 * does not sign. https://postmarkapp.com/developer/webhooks/webhooks-overview: basic authentication.
 */
const event = z.object({
  RecordType: z.string(),
  Type: z.string().nullish(),
  /** The server's reply. `Description` has Postmark's own words. */
  Details: z.string().nullish(),
});

/** https://postmarkapp.com/developer/api/bounce-api#bounce-types, by the meaning of each type. */
const PERMANENT = new Set(["HardBounce", "BadEmailAddress"]);
const TEMPORARY = new Set(["SoftBounce", "DnsError", "Unknown"]);
const ABOUT_THE_MAIL = new Set(["Blocked", "DMARCPolicy", "SpamNotification", "VirusNotification"]);
/** Postmark took the mail by SMTP and did not try to deliver it, such as to an inactive recipient. */
const DROPPED = new Set(["SMTPApiError", "TemplateRenderingFailed", "Unconfirmed"]);

function findingOf({ RecordType, Type, Details }: z.infer<typeof event>): ReportFinding | undefined {
  const type = RecordType === "Bounce" ? (Type ?? "") : RecordType;
  if (type === "SpamComplaint") return { kind: "complaint" };
  if (DROPPED.has(type)) return { kind: "dropped_by_provider" };
  const isPermanent = PERMANENT.has(type);
  const isSendersFault = ABOUT_THE_MAIL.has(type);
  // The others are delays, answers of people or their servers, and changes of subscriptions.
  if (!isPermanent && !isSendersFault && !TEMPORARY.has(type)) return undefined;
  return bounceFinding({ reply: Details, isPermanent, isSendersFault });
}

/** https://postmarkapp.com/support/article/1125-custom-metadata-faq: of `X-PM-Metadata-NAME`. */
const ID = ["Metadata", MAIL_FIELD];

export const postmarkSource = (vault: Vault): ReportSource<unknown[]> => ({
  verify: byPassword(vault),
  parse: eventReader([ID], event, findingOf),
});
