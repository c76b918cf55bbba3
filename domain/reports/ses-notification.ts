import { isObject, type JsonObject, parseObject } from "../../lib/json-object.ts";
import { MAX_REPORTED } from "./delivery-status.ts";
import { classifyBounce } from "./provider-bounce.ts";
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

/** Of a permanent bounce: SES itself knows that there is no such mailbox. */
const ABOUT_THE_ADDRESS = new Set(["NoEmail", "Suppressed", "OnAccountSuppressionList"]);
/** Of a transient bounce. */
const ABOUT_THE_MAIL = new Set(["ContentRejected", "AttachmentRejected", "MessageTooLarge"]);

/** Those of SES's bounce object, whose fields may be any; none for an automatic answer. */
export function readBounced(bounce: JsonObject): ReportedRecipient[] {
  if (isAutomaticAnswer(bounce)) return [];
  const subType = textOf(bounce["bounceSubType"]);
  const isKnown = ABOUT_THE_ADDRESS.has(subType);
  const ownWord = { isPermanent: bounce["bounceType"] === "Permanent", isSendersFault: ABOUT_THE_MAIL.has(subType) };
  return listOf(bounce["bouncedRecipients"]).map((recipient) => {
    const reply = isKnown ? {} : { reply: textOf(recipient["diagnosticCode"]), status: textOf(recipient["status"]) };
    return { address: addressOf(recipient), isDelay: false, ...classifyBounce({ ...reply, ...ownWord }) };
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
  if (type === "Bounce" && isObject(bounce)) return readBounced(bounce);
  if (type === "Complaint" && isObject(complaint)) return complained(complaint);
  return type === "" ? undefined : [];
}
