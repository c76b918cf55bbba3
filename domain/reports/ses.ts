import { z } from "zod";
import type { SuppressionReason } from "../../db/entities/audience.ts";
import { kysely, ofTenant } from "../../db/orm.ts";
import type { FetchText } from "../../lib/fetch-text.ts";
import { type JsonObject, parseObject } from "../../lib/json-object.ts";
import { classifyBounce, findingOf } from "./provider-bounce.ts";
import type { ReportFinding } from "./record.ts";
import { isComplaint } from "./report.ts";
import { isAutomaticAnswer, readBounced } from "./ses-notification.ts";
import { type SnsMessage, SnsVerifier } from "./sns.ts";
import { forged, mailAt, noJson, type ReportSource, readEvent } from "./source.ts";

/**
 * Both forms: of an identity (https://docs.aws.amazon.com/ses/latest/dg/notification-contents.html) and of a configuration
 * set (https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html).
 */
const notification = z.object({ type: z.string() });
const bounce = z.object({
  bounceType: z.string(),
  bounceSubType: z.string().nullish(),
  bouncedRecipients: z.unknown().optional(),
});
const complaint = z.object({ complaintFeedbackType: z.string().nullish(), complaintSubType: z.string().nullish() });

/** SES took the mails and did not try to deliver them: the address bounced or complained before. */
const DROPPED = new Set(["Suppressed", "OnAccountSuppressionList"]);

const droppedAs = (suppressAs: SuppressionReason): ReportFinding => ({ kind: "dropped_by_provider", suppressAs });

/** Undefined for a bounce of a mail that was tried. */
export const ofDropped = (subType: string | null | undefined): ReportFinding | undefined =>
  subType === "UnsubscribedRecipient"
    ? droppedAs("UNSUBSCRIBED")
    : DROPPED.has(subType ?? "")
      ? droppedAs("bounce:hard")
      : undefined;

/** Also of Resend, which sends by SES. @returns undefined for an automatic answer */
export function ofBounce(bounced: z.infer<typeof bounce>): ReportFinding | undefined {
  const { bounceType, bounceSubType, bouncedRecipients } = bounced;
  if (isAutomaticAnswer(bounced)) return undefined;
  const dropped = ofDropped(bounceSubType);
  if (dropped) return dropped;
  // A mail has one recipient; an alias may stand for several.
  const known = readBounced({ bounceType, bounceSubType, bouncedRecipients });
  const [first = classifyBounce({ isPermanent: bounceType === "Permanent" })] = known;
  return findingOf(known.find(({ kind }) => kind !== "hard") ?? first);
}

function ofComplaint({ complaintFeedbackType, complaintSubType }: z.infer<typeof complaint>) {
  if (DROPPED.has(complaintSubType ?? "")) return droppedAs("bounce:complaint");
  return isComplaint(complaintFeedbackType ?? "") ? ({ kind: "complaint" } as const) : undefined;
}

function readNotification(given: JsonObject): ReportFinding | undefined {
  switch (notification.parse({ type: given["eventType"] ?? given["notificationType"] }).type) {
    case "Bounce":
      return ofBounce(bounce.parse(given["bounce"]));
    case "Complaint":
      return ofComplaint(complaint.parse(given["complaint"]));
    default:
      return undefined;
  }
}

/** SES gives a mail an id of its own. */
const IDS = [
  ["mail", "headers", "message-id"],
  ["mail", "commonHeaders", "messageId"],
];

export function sesSource(fetchText: FetchText): ReportSource<SnsMessage> {
  const sns = new SnsVerifier(fetchText);
  return {
    async verify({ body }, { topicArn }) {
      const message = await sns.verify(body);
      const isFirst = topicArn == null && message.Type === "SubscriptionConfirmation";
      if (message.TopicArn !== topicArn && !isFirst) throw forged("The message is of another topic.");
      return message;
    },

    async confirm(em, message, source) {
      if (message.Type !== "SubscriptionConfirmation") return;
      // Of two topics that are confirmed at once, the first one becomes the webhook's.
      const { numUpdatedRows } = await kysely(em)
        .updateTable("report_sources")
        .set({ topic_arn: message.TopicArn })
        .where("id", "=", source.id)
        .where(ofTenant(source))
        .where((eb) => eb.or([eb("topic_arn", "is", null), eb("topic_arn", "=", message.TopicArn)]))
        .executeTakeFirst();
      if (numUpdatedRows === 0n) throw forged("The message is of another topic.");
      await sns.confirm(message);
    },

    parse({ Type, Message }) {
      const given = Type === "Notification" ? parseObject(Message) : undefined;
      if (given) return readEvent(mailAt(given, IDS), () => readNotification(given));
      // SES sends a text when a topic is set up.
      if (Message.startsWith("{")) throw noJson();
      return [];
    },
  };
}
