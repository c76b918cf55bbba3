import { z } from "zod";
import { hmacUnder } from "../../lib/hmac.ts";
import { equalConstantTime, type Vault } from "../secrets/crypto.ts";
import type { ReportFinding } from "./record.ts";
import { ofBounce, ofDropped } from "./ses.ts";
import { eventReader, forged, type ReportSource, readEvents, refuseOld, signingKeyOf } from "./source.ts";

/** https://resend.com/docs/webhooks/emails/bounced, …/suppressed. Resend sends by Amazon SES, and has its types of bounces. */
const event = z.object({
  type: z.string(),
  data: z.object({
    bounce: z
      .object({
        type: z.string(),
        subType: z.string().nullish(),
        /** The server's replies; `message` has Resend's own words. */
        diagnosticCode: z.union([z.string(), z.array(z.string())]).nullish(),
      })
      .nullish(),
    suppressed: z.object({ type: z.string().nullish() }).nullish(),
  }),
});
type Event = z.infer<typeof event>;

function bounceOf({ bounce }: Event["data"]): ReportFinding | undefined {
  if (!bounce) return undefined;
  const bouncedRecipients = [bounce.diagnosticCode ?? []].flat().map((diagnosticCode) => ({ diagnosticCode }));
  return ofBounce({ bounceType: bounce.type, bounceSubType: bounce.subType, bouncedRecipients });
}

function findingOf({ type, data }: Event): ReportFinding | undefined {
  switch (type) {
    case "email.bounced":
      return bounceOf(data);
    case "email.complained":
      return { kind: "complaint" };
    case "email.suppressed":
      return ofDropped(data.suppressed?.type) ?? { kind: "dropped_by_provider" };
    case "email.failed":
      return { kind: "dropped_by_provider" };
    default:
      return undefined;
  }
}

/** A header of ours, where the event shows those of the mail; by the same pages, the mail's Message-ID. */
const IDS = [
  ["data", "headers", "x-mailkeel-mail"],
  ["data", "message_id"],
];

const HEADERS = ["svix-id", "svix-timestamp", "svix-signature"];
/** Svix signs each attempt anew. */
const MAX_AGE_SECONDS = 300;

/** https://resend.com/docs/webhooks/verify-webhooks-requests: by Svix, whose header may hold several signatures. */
export const resendSource = (vault: Vault): ReportSource<unknown[]> => ({
  async verify({ body, header }, source) {
    const sign = hmacUnder(Buffer.from(signingKeyOf(vault, source).replace(/^whsec_/, ""), "base64"));
    const [id = "", timestamp = "", signatures = ""] = HEADERS.map(header);
    refuseOld(timestamp, MAX_AGE_SECONDS);
    const expected = `v1,${Buffer.from(sign("hex", `${id}.${timestamp}.`, body), "hex").toString("base64")}`;
    const isSigned = signatures.split(" ").some((each) => equalConstantTime(each, expected));
    if (!isSigned) throw forged("The signature is wrong.");
    return readEvents(body);
  },
  parse: eventReader(IDS, event, findingOf),
});
