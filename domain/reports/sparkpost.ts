import { z } from "zod";
import { isObject } from "../../lib/json-object.ts";
import type { Vault } from "../secrets/crypto.ts";
import { bounceFinding } from "./provider-bounce.ts";
import { MAIL_FIELD } from "./providers.ts";
import type { ReportFinding } from "./record.ts";
import { isComplaint } from "./report.ts";
import { byPassword, eventReader, type ReportSource } from "./source.ts";

/**
 * https://developers.sparkpost.com/api/webhooks/: an array of events, each within `msys` and the class of the event. SparkPost
 * does not sign it; the same page: basic authentication. `[{"msys":{}}]` tries the URL.
 */
const event = z.object({
  type: z.string(),
  bounce_class: z.union([z.string(), z.number()]).nullish(),
  /** The server's reply; `reason` is the same without what differs from mail to mail. */
  raw_reason: z.string().nullish(),
  reason: z.string().nullish(),
  /** Of a complaint, as RFC 5965 names it. */
  fbtype: z.string().nullish(),
});

type Event = z.infer<typeof event>;

/** https://www.sparkpost.com/docs/deliverability/bounce-classification-codes/ */
const PERMANENT = new Set(["10", "30"]);
const ABOUT_THE_SENDER = new Set(["23", "50", "51", "52", "53", "54"]);
/** By the policy of SparkPost, such as its list of suppressed addresses: it did not try to deliver the mail. */
const DROPPED = new Set(["25", "26"]);
/** Answers of people and their servers, and subscriptions. */
const NO_BOUNCE = new Set(["60", "80", "90", "100"]);

function bounceOf({ bounce_class, raw_reason, reason }: Event): ReportFinding | undefined {
  const code = String(bounce_class ?? "");
  if (NO_BOUNCE.has(code)) return undefined;
  if (DROPPED.has(code)) return { kind: "dropped_by_provider" };
  const reply = raw_reason || reason;
  return bounceFinding({ reply, isPermanent: PERMANENT.has(code), isSendersFault: ABOUT_THE_SENDER.has(code) });
}

function findingOf(given: Event): ReportFinding | undefined {
  switch (given.type) {
    case "bounce":
    case "out_of_band":
      return bounceOf(given);
    case "spam_complaint":
      return isComplaint(given.fbtype?.toLowerCase() ?? "") ? { kind: "complaint" } : undefined;
    case "policy_rejection":
    case "generation_failure":
    case "generation_rejection":
      return { kind: "dropped_by_provider" };
    default:
      return undefined;
  }
}

const eventsIn = (given: unknown): unknown[] =>
  isObject(given) && isObject(given["msys"]) ? Object.values(given["msys"]) : [];

/** https://developers.sparkpost.com/api/smtp/: the metadata of `X-MSYS-API`. */
const ID = ["rcpt_meta", MAIL_FIELD];
const readEach = eventReader([ID], event, findingOf);

export const sparkpostSource = (vault: Vault): ReportSource<unknown[]> => ({
  verify: byPassword(vault),
  parse: (batch) => readEach(batch.flatMap(eventsIn)),
});
