import { type KeyObject, sign } from "node:crypto";
import { readFileSync } from "node:fs";
import type { MailRef } from "../../domain/mail/links.ts";
import { mailId, messageIdOf } from "../../domain/mail/message-id.ts";
import type { Json } from "../support/api.ts";
import { unique } from "../support/factories.ts";

const SNS = `${import.meta.dirname}/../data/sns`;
export const CERTIFICATE = readFileSync(`${SNS}/cert.pem`, "utf8");
export const EXPIRED_CERTIFICATE = readFileSync(`${SNS}/expired.pem`, "utf8");
const KEY = readFileSync(`${SNS}/key.pem`, "utf8");

export const TOPIC = "arn:aws:sns:eu-west-1:123456789012:mail-reports";
export const HOST = "https://sns.eu-west-1.amazonaws.com";
export const CERTIFICATE_URL = `${HOST}/SimpleNotificationService-01d088a6f77103d0fe307c0069e40ed6.pem`;

/** The text that SNS's documentation says is signed, written out for each type. */
function textOf(message: Json): string {
  const line = (name: string) => (message[name] === undefined ? "" : `${name}\n${message[name]}\n`);
  return message.Type === "Notification"
    ? line("Message") + line("MessageId") + line("Subject") + line("Timestamp") + line("TopicArn") + line("Type")
    : line("Message") +
        line("MessageId") +
        line("SubscribeURL") +
        line("Timestamp") +
        line("Token") +
        line("TopicArn") +
        line("Type");
}

/** A message as SNS signs it; with `changes` before it is signed. */
export function snsMessage(changes: Json = {}, key: string = KEY): Json {
  const message = {
    Type: "Notification",
    MessageId: unique("22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324"),
    TopicArn: TOPIC,
    Message: "{}",
    Timestamp: new Date().toISOString(),
    SignatureVersion: "2",
    SigningCertURL: CERTIFICATE_URL,
    UnsubscribeURL: `${HOST}/?Action=Unsubscribe&SubscriptionArn=${TOPIC}:c9135db0-26c4-47ec-8998-413945fb5a96`,
    ...changes,
  };
  const algorithm = message.SignatureVersion === "1" ? "RSA-SHA1" : "RSA-SHA256";
  return { ...message, Signature: sign(algorithm, Buffer.from(textOf(message)), key).toString("base64") };
}

export function subscriptionConfirmation(changes: Json = {}): Json {
  const token = unique("2336412f37");
  const topic = changes.TopicArn ?? TOPIC;
  return snsMessage({
    Type: "SubscriptionConfirmation",
    Token: token,
    Message: `You have chosen to subscribe to the topic ${topic}.\nTo confirm the subscription, visit the SubscribeURL included in this message.`,
    SubscribeURL: `${HOST}/?Action=ConfirmSubscription&TopicArn=${topic}&Token=${token}`,
    ...changes,
  });
}

/** The mail object of SES's records, with the original headers. */
const mailObject = (mail: MailRef): Json => {
  const messageId = messageIdOf(mail, "sender.example");
  return {
    timestamp: "2016-01-27T14:59:38.237Z",
    source: "john@example.com",
    sourceArn: "arn:aws:ses:us-east-1:888888888888:identity/example.com",
    sendingAccountId: "123456789012",
    messageId: "00000138111222aa-33322211-cccc-cccc-cccc-ddddaaaa0680-000000",
    destination: ["jane@example.com"],
    headersTruncated: false,
    headers: [
      { name: "From", value: '"John Doe" <john@example.com>' },
      { name: "To", value: '"Jane Doe" <jane@example.com>' },
      { name: "Message-ID", value: `<${messageId}>` },
      { name: "Subject", value: "Hello" },
    ],
    commonHeaders: {
      from: ["John Doe <john@example.com>"],
      date: "Wed, 27 Jan 2016 14:05:45 +0000",
      to: ["Jane Doe <jane@example.com>"],
      messageId,
      subject: "Hello",
    },
  };
};

/** SES's record of a bounce, as a configuration set publishes it (`eventType`) or an identity (`notificationType`). */
export const sesBounce = (
  mail: MailRef,
  {
    form = "eventType",
    bounceType = "Permanent",
    bounceSubType = "General",
    status = "5.1.1",
    reply = "550 5.1.1 user unknown",
  }: Json = {},
): Json => ({
  [form]: "Bounce",
  bounce: {
    bounceType,
    bounceSubType,
    bouncedRecipients: [
      {
        emailAddress: "jane@example.com",
        action: "failed",
        status,
        diagnosticCode: `smtp; ${reply}`,
      },
    ],
    timestamp: "2017-08-05T00:41:02.669Z",
    feedbackId: "01000157c44f053b-61b59c11-9236-11e6-8f96-7be8aexample-000000",
    reportingMTA: "dsn; mta.example.com",
  },
  mail: mailObject(mail),
});

export const sesComplaint = (
  mail: MailRef,
  { form = "eventType", complaintFeedbackType = "abuse" as string | undefined } = {},
): Json => ({
  [form]: "Complaint",
  complaint: {
    complainedRecipients: [{ emailAddress: "jane@example.com" }],
    timestamp: "2017-08-05T00:41:02.669Z",
    feedbackId: "01000157c44f053b-61b59c11-9236-11e6-8f96-7be8aexample-000000",
    complaintSubType: null,
    userAgent: "Amazon SES Mailbox Simulator",
    ...(complaintFeedbackType === undefined ? {} : { complaintFeedbackType }),
    arrivalDate: "2017-08-05T00:41:02.669Z",
  },
  mail: mailObject(mail),
});

export const notificationOf = (record: Json, changes: Json = {}): Json =>
  snsMessage({ Subject: "Amazon SES Email Event Notification", Message: JSON.stringify(record), ...changes });

export const sendGridEvent = (mail: MailRef, changes: Json = {}): Json => ({
  email: "example@test.com",
  timestamp: 1_513_299_569,
  "smtp-id": `<${messageIdOf(mail, "sender.example")}>`,
  event: "bounce",
  category: ["cat facts"],
  sg_event_id: unique("6g4ZI7SA-xmRDv57GoPIPw"),
  sg_message_id: "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0",
  reason: "500 unknown recipient",
  status: "5.0.0",
  type: "bounce",
  bounce_classification: "Invalid Address",
  ...changes,
});

/** A complaint as SendGrid reports it: without `smtp-id`, with the arguments of the mail. */
export const sendGridComplaint = (mail: MailRef): Json => ({
  email: "example@test.com",
  timestamp: 1_513_299_569,
  event: "spamreport",
  mailkeel_mail: mailId(mail),
  sg_event_id: unique("37nvH5QBz858KGVYCM4uOA"),
  sg_message_id: "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0",
});

export function sendGridRequest(
  events: Json,
  key: KeyObject,
  { at = Date.now() }: { at?: number } = {},
): { body: string; headers: Record<string, string> } {
  const body = `${JSON.stringify(events)}\r\n`;
  const timestamp = String(Math.floor(at / 1_000));
  return {
    body,
    headers: {
      "content-type": "application/json",
      "x-twilio-email-event-webhook-signature": sign("sha256", Buffer.from(timestamp + body), key).toString("base64"),
      "x-twilio-email-event-webhook-timestamp": timestamp,
    },
  };
}
