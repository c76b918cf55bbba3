import { z } from "zod";
import type { Vault } from "../secrets/crypto.ts";
import { bounceFinding } from "./provider-bounce.ts";
import type { ReportFinding } from "./record.ts";
import { byPassword, eventReader, type ReportSource } from "./source.ts";

/**
 * https://developers.brevo.com/docs/transactional-webhooks: one event a request, or an array of a webhook that batches. Brevo
 * does not sign it; https://developers.brevo.com/docs/secured-webhooks: basic authentication in the URL.
 */
const event = z.object({
  event: z.string(),
  /** The server's reply, or Brevo's own words. */
  reason: z.string().nullish(),
});

function findingOf({ event: name, reason }: z.infer<typeof event>): ReportFinding | undefined {
  switch (name) {
    case "hard_bounce":
    case "soft_bounce":
      return bounceFinding({ reply: reason, isPermanent: name === "hard_bounce" });
    case "spam":
    case "complaint":
      return { kind: "complaint" };
    case "invalid_email":
      return { kind: "dropped_by_provider", suppressAs: "bounce:hard" };
    // An address that is on Brevo's own list for any reason, or a failure at Brevo.
    case "blocked":
    case "error":
      return { kind: "dropped_by_provider" };
    default:
      return undefined;
  }
}

/** A header of the mail (https://developers.brevo.com/docs/smtp-integration), or its Message-ID. */
const IDS = [["X-Mailin-custom"], ["message-id"]];

export const brevoSource = (vault: Vault): ReportSource<unknown[]> => ({
  verify: byPassword(vault),
  parse: eventReader(IDS, event, findingOf),
});
