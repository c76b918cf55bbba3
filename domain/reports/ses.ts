import { z } from "zod";
import { kysely, ofTenant } from "../../db/orm.ts";
import type { FetchText } from "../fetch-text.ts";
import { readMailId } from "../mail/message-id.ts";
import type { ReportFinding } from "./record.ts";
import { isComplaint } from "./report.ts";
import { type SnsMessage, SnsVerifier } from "./sns.ts";
import { forged, type ReportSource } from "./source.ts";

/**
 * The notifications of Amazon SES, in both of its forms: of an identity (`notificationType`,
 * https://docs.aws.amazon.com/ses/latest/dg/notification-contents.html) and of a configuration set (`eventType`,
 * https://docs.aws.amazon.com/ses/latest/dg/event-publishing-retrieving-sns-contents.html). SES gives a mail an id of its
 * own; its Message-ID is among the original headers.
 */
const notification = z.object({
  eventType: z.string().optional(),
  notificationType: z.string().optional(),
  bounce: z.object({ bounceType: z.string(), bounceSubType: z.string().nullish() }).optional(),
  complaint: z.object({ complaintFeedbackType: z.string().nullish() }).optional(),
  mail: z.object({
    headers: z.array(z.object({ name: z.string(), value: z.string() })).nullish(),
    commonHeaders: z.object({ messageId: z.string().nullish() }).nullish(),
  }),
});

type Notification = z.infer<typeof notification>;

/** Subtypes of a transient bounce that are about the mail. */
const ABOUT_THE_MAIL = new Set(["ContentRejected", "AttachmentRejected", "MessageTooLarge"]);

/** A permanent bounce that is not about the mailbox: its owner has unsubscribed by a link of SES. */
const UNSUBSCRIBED = "UnsubscribedRecipient";

function findingOf({ eventType, notificationType, bounce, complaint }: Notification): ReportFinding | undefined {
  switch (eventType ?? notificationType) {
    case "Bounce": {
      if (!bounce) return undefined;
      const { bounceType, bounceSubType } = bounce;
      // Permanent/Suppressed and Permanent/OnAccountSuppressionList: the address bounced before, for another mail.
      if (bounceType === "Permanent" && bounceSubType !== UNSUBSCRIBED) return { kind: "bounce:hard" };
      return { kind: "bounce:soft", isSendersFault: ABOUT_THE_MAIL.has(bounceSubType ?? "") };
    }
    case "Complaint":
      return complaint && isComplaint(complaint.complaintFeedbackType ?? "") ? { kind: "complaint" } : undefined;
    default:
      return undefined;
  }
}

/** @returns undefined for a text of another form, e.g. the one that SES sends when a topic is set up */
function readNotification(text: string): Notification | undefined {
  try {
    return notification.safeParse(JSON.parse(text)).data;
  } catch {
    return undefined;
  }
}

/** Bounces and complaints of Amazon SES, by Amazon SNS. */
export function sesSource(fetchText: FetchText): ReportSource<SnsMessage> {
  const sns = new SnsVerifier(fetchText);
  return {
    async verify({ body }, { topicArn }) {
      const message = await sns.verify(body);
      const isFirst = topicArn === null && message.Type === "SubscriptionConfirmation";
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
      const read = Type === "Notification" ? readNotification(Message) : undefined;
      const finding = read && findingOf(read);
      if (!finding) return [];
      const { headers, commonHeaders } = read.mail;
      const header = headers?.find(({ name }) => name.toLowerCase() === "message-id")?.value;
      const mail = readMailId(header ?? commonHeaders?.messageId ?? "");
      return mail ? [{ ...mail, ...finding }] : [];
    },
  };
}
