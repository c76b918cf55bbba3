import { isObject, type JsonObject, parseObject } from "../../lib/json-object.ts";
import { MAX_REPORTED } from "./delivery-status.ts";
import { readReply } from "./quoted-reply.ts";
import { classifyReply } from "./reply-rules.ts";
import { isComplaint, type ReportedRecipient, reportedRecipient } from "./report.ts";

const textOf = (value: unknown): string => (typeof value === "string" ? value : "");
const listOf = (value: unknown): JsonObject[] =>
  Array.isArray(value) ? value.slice(0, MAX_REPORTED).filter(isObject) : [];
const addressOf = (recipient: JsonObject): string => textOf(recipient["emailAddress"]).toLowerCase();

/** SES calls the automatic answer of a recipient a bounce for now. */
export function isAutomaticAnswer({ bounceType, bounceSubType, bouncedRecipients }: JsonObject): boolean {
  const says = ({ action, status, diagnosticCode }: JsonObject) => action ?? status ?? diagnosticCode;
  return bounceType === "Transient" && bounceSubType === "General" && !listOf(bouncedRecipients).some(says);
}

function bounced(bounce: JsonObject): ReportedRecipient[] {
  if (isAutomaticAnswer(bounce)) return [];
  return listOf(bounce["bouncedRecipients"]).map((recipient) => {
    const reply = readReply(textOf(recipient["diagnosticCode"]), "", textOf(recipient["status"]));
    const isPermanent = bounce["bounceType"] === "Permanent";
    // Without a reply there is only Amazon's own type.
    const known =
      reply.text === "" && isPermanent ? { kind: "hard" as const, isSendersFault: false } : classifyReply(reply);
    return { address: addressOf(recipient), isDelay: false, ...known };
  });
}

function complained(complaint: JsonObject): ReportedRecipient[] {
  const kind = isComplaint(textOf(complaint["complaintFeedbackType"])) ? "complaint" : "none";
  return listOf(complaint["complainedRecipients"]).map((recipient) => reportedRecipient(addressOf(recipient), kind));
}

/**
 * A notification that SNS sent as mail: JSON, alone or as the message of SNS's own JSON, and a footer; undefined for other
 * texts.
 */
export function readMailedNotification(text: string): ReportedRecipient[] | undefined {
  const [body = ""] = text.trimStart().split("\n--\n", 1);
  if (!body.startsWith("{")) return undefined;
  // Lines that the mail broke: JSON has no breaks inside a text.
  const outer = parseObject(body.replace(/\r?\n/g, ""));
  const notification = outer?.["Type"] === "Notification" ? parseObject(textOf(outer["Message"])) : outer;
  if (notification === undefined) return undefined;
  const type = textOf(notification["notificationType"]) || textOf(notification["eventType"]);
  const { bounce, complaint } = notification;
  if (type === "Bounce" && isObject(bounce)) return bounced(bounce);
  if (type === "Complaint" && isObject(complaint)) return complained(complaint);
  return type === "" ? undefined : [];
}
