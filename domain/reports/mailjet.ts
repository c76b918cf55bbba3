import { z } from "zod";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import type { Vault } from "../secrets/crypto.ts";
import { bounceFinding } from "./provider-bounce.ts";
import type { ReportFinding } from "./record.ts";
import { byPassword, eventReader, type ReportSource } from "./source.ts";

/**
 * https://dev.mailjet.com/email/guides/webhooks/: one event a request, or an array of a webhook that groups them. Mailjet does
 * not sign it; the same page: basic authentication in the URL.
 */
const event = z.object({
  event: z.string(),
  hard_bounce: z.boolean().nullish(),
  error_related_to: z.string().nullish(),
  /** Mailjet's own word, out of a list of the same page. */
  error: z.string().nullish(),
  /** The server's reply. */
  comment: z.string().nullish(),
});

const ABOUT_THE_SENDER = new Set(["content", "spam", "mailjet"]);

/** Errors of mails that Mailjet did not try to deliver. Any other is not, or not surely, about the address. */
const DROPPED: ReadonlyMap<string, SuppressionReason> = new Map([
  ["user unknown", "bounce:hard"],
  ["invalid domain", "bounce:hard"],
  ["spam reporter", "bounce:complaint"],
]);

function findingOf({ event: name, error, ...given }: z.infer<typeof event>): ReportFinding | undefined {
  switch (name) {
    case "bounce": {
      const isSendersFault = ABOUT_THE_SENDER.has(given.error_related_to ?? "");
      return bounceFinding({ reply: given.comment || error, isPermanent: given.hard_bounce === true, isSendersFault });
    }
    case "blocked":
      return { kind: "dropped_by_provider", suppressAs: DROPPED.get(error ?? "") };
    case "spam":
      return { kind: "complaint" };
    default:
      return undefined;
  }
}

/** https://dev.mailjet.com/smtp-relay/custom-headers/: of `X-MJ-CustomID`. */
const ID = ["CustomID"];

export const mailjetSource = (vault: Vault): ReportSource<unknown[]> => ({
  verify: byPassword(vault),
  parse: eventReader([ID], event, findingOf),
});
