import { z } from "zod";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import { hmacUnder } from "../../lib/hmac.ts";
import { parseObject } from "../../lib/json-object.ts";
import { equalConstantTime, type Vault } from "../secrets/crypto.ts";
import { bounceFinding } from "./provider-bounce.ts";
import { MAIL_FIELD } from "./providers.ts";
import type { ReportFinding } from "./record.ts";
import { eventReader, type Finding, forged, type ReportSource, refuseOld, signingKeyOf, textAt } from "./source.ts";

/** https://documentation.mailgun.com/docs/mailgun/user-manual/events/event-structure */
const event = z.object({
  event: z.string(),
  /** In seconds, with a fraction. */
  timestamp: z.number().nullish().catch(null),
  /** Of an open or a click; `bot` names a program, and is empty for a person. */
  "client-info": z.object({ bot: z.string().nullish() }).nullish().catch(null),
  severity: z.string().nullish(),
  reason: z.string().nullish(),
  "delivery-status": z
    .object({
      code: z.union([z.number(), z.string()]).nullish(),
      "enhanced-code": z.string().nullish(),
      /** The server's reply; `description` has Mailgun's own words. */
      message: z.string().nullish(),
      description: z.string().nullish(),
    })
    .nullish(),
});
type Event = z.infer<typeof event>;

/** Reasons of mails that Mailgun did not try to deliver. */
const DROPPED: ReadonlyMap<string, SuppressionReason> = new Map([
  ["suppress-bounce", "bounce:hard"],
  ["suppress-complaint", "bounce:complaint"],
  ["suppress-unsubscribe", "UNSUBSCRIBED"],
]);

function bounceOf({ reason, "delivery-status": status }: Event): ReportFinding {
  const text = status?.message || status?.description || "";
  // Codes below 500 are also Mailgun's own, of mails that no server answered.
  const code = /^5\d\d$/.exec(String(status?.code))?.[0] ?? "";
  const isBlocked = reason === "espblock";
  const reply = text.includes(code) ? text : `${code} ${text}`;
  // "old": not delivered in time.
  const isPermanent = reason !== "old" && !isBlocked;
  return bounceFinding({ reply, status: status?.["enhanced-code"], isPermanent, isSendersFault: isBlocked });
}

function findingOf({ "event-data": given }: { "event-data": Event }): Finding {
  if (given.event === "complained") return { kind: "complaint" };
  if (given.event === "opened" || given.event === "clicked") {
    const { "client-info": client, timestamp } = given;
    return client?.bot && timestamp != null ? { machine: given.event, at: timestamp * 1_000 } : undefined;
  }
  if (given.event === "rejected") return { kind: "dropped_by_provider" };
  // Mailgun tries again after a temporary failure.
  if (given.event !== "failed" || given.severity !== "permanent") return undefined;
  const suppressAs = DROPPED.get(given.reason ?? "");
  return suppressAs ? { kind: "dropped_by_provider", suppressAs } : bounceOf(given);
}

/** https://documentation.mailgun.com/docs/mailgun/user-manual/sending-messages/send-attachments: of `X-Mailgun-Variables`. */
const IDS = [
  ["event-data", "user-variables", MAIL_FIELD],
  ["event-data", "message", "headers", "message-id"],
];

/** Mailgun repeats a request for eight hours; one more hour is for clocks. */
const MAX_AGE_SECONDS = 9 * 3_600;
/** The second is by the key of the main account, for events of another one below it. */
const SIGNATURES = ["signature", "parent-signature"];

/** https://documentation.mailgun.com/docs/mailgun/user-manual/webhooks/securing-webhooks: in the body, of a time and a token. */
export const mailgunSource = (vault: Vault): ReportSource<unknown[]> => ({
  async verify({ body }, source) {
    const sign = hmacUnder(Buffer.from(signingKeyOf(vault, source)));
    const message = parseObject(body.toString("utf8"));
    const signed = (name: string) => textAt(message, ["signature", name]);
    refuseOld(signed("timestamp"), MAX_AGE_SECONDS);
    const expected = sign("hex", signed("timestamp"), signed("token"));
    if (!SIGNATURES.some((name) => equalConstantTime(signed(name), expected))) throw forged("The signature is wrong.");
    return [message];
  },
  parse: eventReader(IDS, z.object({ "event-data": event }), findingOf),
});
