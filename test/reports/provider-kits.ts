import { createHmac, generateKeyPairSync, randomBytes } from "node:crypto";
import { pino } from "pino";
import { scrubError } from "../../config/scrub.ts";
import type { ReportProvider, Source } from "../../db/entities/engagement.ts";
import type { MailRef } from "../../domain/mail/links.ts";
import { messageIdOf } from "../../domain/mail/message-id.ts";
import { brevoSource } from "../../domain/reports/brevo.ts";
import { mailgunSource } from "../../domain/reports/mailgun.ts";
import { mailjetSource } from "../../domain/reports/mailjet.ts";
import { postmarkSource } from "../../domain/reports/postmark.ts";
import { PROVIDERS, providerHeaderOf } from "../../domain/reports/providers.ts";
import { resendSource } from "../../domain/reports/resend.ts";
import { SENDGRID } from "../../domain/reports/sendgrid.ts";
import { sesSource } from "../../domain/reports/ses.ts";
import { type ParsedReport, passwordOf, SOURCE_USER, type SourceFields } from "../../domain/reports/source.ts";
import { sparkpostSource } from "../../domain/reports/sparkpost.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import type { Json } from "../support/api.ts";
import { unique } from "../support/factories.ts";
import {
  notificationOf,
  sendGridComplaint,
  sendGridEvent,
  sendGridRequest,
  sesBounce,
  sesComplaint,
  TOPIC,
} from "./payloads.ts";

/** What a test asks of every provider. */
export type Happening =
  | { kind: "permanent" | "temporary"; reply: string; status?: string }
  | { kind: "complaint" | "dropped" | "delayed" | "unsubscribed" | "unknown" };

export interface Kit {
  provider: ReportProvider;
  /** The status that says that the events are facts. */
  done: 200 | 204;
  fields: SourceFields;
  /** The provider's event about a mail, as its request holds it. */
  event(mail: MailRef, happening: Happening): Json;
  /** Where the provider has its fields: changed to find out what happens to nulls. */
  fieldsOf(event: Json): Json;
  request(vault: Vault, source: Source, event: Json, at?: number): { body: string; headers: Record<string, string> };
  /** Reads an event as its adapter does, once it is verified. */
  parse(event: Json): ParsedReport[];
}

const NO_VAULT = {} as Vault;
const EMAIL = "jane@example.com";

/** The header that a mail of the account carries, by its value. */
const headerOf = (provider: ReportProvider, mail: MailRef): string => {
  const line = providerHeaderOf(PROVIDERS[provider].account)?.(mail) ?? "";
  return line.slice(line.indexOf(": ") + 2).trimEnd();
};

const byPassword: Kit["request"] = (vault, source, event) => ({
  body: JSON.stringify(event),
  headers: {
    "content-type": "application/json",
    authorization: `Basic ${Buffer.from(`${SOURCE_USER}:${passwordOf(vault, source)}`).toString("base64")}`,
  },
});

const replyOf = (happening: Happening): { reply: string; status: string } =>
  "reply" in happening ? { reply: happening.reply, status: happening.status ?? "" } : { reply: "", status: "" };

const ses: Kit = {
  provider: "SES",
  done: 204,
  fields: { topicArn: TOPIC },
  event(mail, happening) {
    const { kind } = happening;
    if (kind === "complaint") return sesComplaint(mail);
    const { reply, status } = replyOf(happening);
    const bounceType = kind === "temporary" ? "Transient" : "Permanent";
    const bounce = sesBounce(mail, { bounceType, bounceSubType: kind === "dropped" ? "Suppressed" : "General" });
    const [recipient] = bounce.bounce.bouncedRecipients;
    Object.assign(recipient, { status: status || null, diagnosticCode: reply && `smtp; ${reply}` });
    if (kind === "permanent" || kind === "temporary" || kind === "dropped") return bounce;
    const types = { delayed: "DeliveryDelay", unsubscribed: "Subscription", unknown: "Something New" };
    return { ...bounce, eventType: types[kind], bounce: undefined };
  },
  fieldsOf: (event) => event.bounce,
  request: (_vault, _source, event) => ({ body: JSON.stringify(notificationOf(event)), headers: {} }),
  parse: (event) => sesSource(async () => ({ status: 500, text: "" })).parse(notificationOf(event) as never),
};

const sendGridKey = generateKeyPairSync("ec", { namedCurve: "P-256" });

const sendGrid: Kit = {
  provider: "SENDGRID",
  done: 204,
  fields: { publicKey: sendGridKey.publicKey.export({ format: "der", type: "spki" }).toString("base64") },
  event(mail, happening) {
    const { kind } = happening;
    if (kind === "complaint") return sendGridComplaint(mail);
    const { reply: reason, status } = replyOf(happening);
    const { unique_args } = JSON.parse(headerOf("SENDGRID", mail));
    const changes = { ...unique_args, "smtp-id": null, bounce_classification: null, reason, status: status || null };
    if (kind === "permanent") return sendGridEvent(mail, changes);
    if (kind === "temporary") return sendGridEvent(mail, { ...changes, type: "blocked" });
    if (kind === "dropped") return sendGridEvent(mail, { ...changes, event: "dropped", reason: "Bounced Address" });
    const events = { delayed: "deferred", unsubscribed: "unsubscribe", unknown: "something_new" };
    return sendGridEvent(mail, { ...changes, event: events[kind] });
  },
  fieldsOf: (event) => event,
  request: (_vault, _source, event, at) =>
    sendGridRequest(Array.isArray(event) ? event : [event], sendGridKey.privateKey, at === undefined ? {} : { at }),
  parse: (event) => SENDGRID.parse([event]),
};

const postmark: Kit = {
  provider: "POSTMARK",
  done: 200,
  fields: {},
  event(mail, happening) {
    const { kind } = happening;
    const types = {
      permanent: ["HardBounce", 1],
      temporary: ["SoftBounce", 4_096],
      complaint: ["SpamComplaint", 100_001],
      dropped: ["SMTPApiError", 100_003],
      delayed: ["Transient", 2],
      unsubscribed: ["Unsubscribe", 16],
      unknown: ["SomethingNew", 9],
    } as const;
    const [Type, TypeCode] = types[kind];
    const { reply, status } = replyOf(happening);
    return {
      RecordType: kind === "complaint" ? "SpamComplaint" : "Bounce",
      MessageStream: "broadcast",
      ID: 4_323_372_036,
      ...{ Type, TypeCode, Name: "As Postmark calls it", Tag: "", ServerID: 23 },
      MessageID: "3c1d7a64-0000-4000-8000-5c8a2f4e9b10",
      Metadata: { mailkeel_mail: headerOf("POSTMARK", mail) },
      Description: "The server was unable to deliver your message (ex: unknown user, mailbox not found).",
      Details: reply && `smtp;${status && !reply.includes(status) ? `${status} ` : ""}${reply}`,
      ...{ Email: EMAIL, From: "news@sender.example", BouncedAt: "2026-11-20T09:00:00Z", DumpAvailable: true },
      ...{ Inactive: true, CanActivate: true, Subject: "Hello", Content: "" },
    };
  },
  fieldsOf: (event) => event,
  request: byPassword,
  parse: (event) => postmarkSource(NO_VAULT).parse([event]),
};

const MAILGUN_KEY = randomBytes(16).toString("hex");

const mailgun: Kit = {
  provider: "MAILGUN",
  done: 200,
  fields: { signingKey: MAILGUN_KEY },
  event(mail, happening) {
    const { kind } = happening;
    const { reply, status } = replyOf(happening);
    const [, code = "", message = ""] = /^(\d{3})[ -](.*)$/.exec(reply) ?? [];
    const events = {
      permanent: { event: "failed", severity: "permanent", reason: "bounce" },
      temporary: { event: "failed", severity: "permanent", reason: "old" },
      complaint: { event: "complained" },
      dropped: { event: "failed", severity: "permanent", reason: "suppress-bounce" },
      delayed: { event: "failed", severity: "temporary", reason: "generic" },
      unsubscribed: { event: "unsubscribed" },
      unknown: { event: "something_new" },
    };
    return {
      id: unique("G9Bn5sl1TC6nu79C8C0bwg"),
      timestamp: 1_795_000_000.123,
      "log-level": "error",
      ...events[kind],
      "delivery-status": {
        ...{ tls: true, "mx-host": "mx.example.com", "attempt-no": 1, "session-seconds": 0.4 },
        ...{ code: Number(code), "enhanced-code": status, message, description: "" },
      },
      flags: { "is-routed": false, "is-authenticated": true, "is-system-test": false, "is-test-mode": false },
      envelope: { transport: "smtp", sender: "news@sender.example", targets: EMAIL },
      message: {
        headers: { to: EMAIL, "message-id": "20261120@other.example", from: "news@sender.example", subject: "Hello" },
        ...{ attachments: [], size: 2_048 },
      },
      ...{ recipient: EMAIL, "recipient-domain": "example.com", tags: [], campaigns: [] },
      "user-variables": JSON.parse(headerOf("MAILGUN", mail)),
    };
  },
  fieldsOf: (event) => event,
  request(_vault, _source, event, at = Date.now()) {
    const [timestamp, token] = [String(Math.floor(at / 1_000)), randomBytes(25).toString("hex")];
    const signature = createHmac("sha256", MAILGUN_KEY)
      .update(timestamp + token)
      .digest("hex");
    const body = JSON.stringify({ signature: { timestamp, token, signature }, "event-data": event });
    return { body, headers: { "content-type": "application/json" } };
  },
  parse: (event) => mailgunSource(NO_VAULT).parse([{ "event-data": event }]),
};

const brevo: Kit = {
  provider: "BREVO",
  done: 200,
  fields: {},
  event(mail, happening) {
    const { kind } = happening;
    const events = {
      ...{ permanent: "hard_bounce", temporary: "soft_bounce", complaint: "spam", dropped: "blocked" },
      ...{ delayed: "deferred", unsubscribed: "unsubscribed", unknown: "something_new" },
    };
    const { reply, status } = replyOf(happening);
    return {
      ...{ event: events[kind], email: EMAIL, id: 26_224, date: "2026-11-20 09:00:00", ts: 1_795_000_000 },
      "message-id": "<202611200900.1234567890@smtp-relay.mailin.fr>",
      ...{ ts_event: 1_795_000_000, subject: "Hello", sending_ip: "192.0.2.10", ts_epoch: 1_795_000_000_123 },
      "X-Mailin-custom": headerOf("BREVO", mail),
      ...{ tag: "", template_id: 0, tags: [] },
      reason: status && !reply.includes(status) ? `${reply} (${status})` : reply,
    };
  },
  fieldsOf: (event) => event,
  request: byPassword,
  parse: (event) => brevoSource(NO_VAULT).parse([event]),
};

const RESEND_KEY = randomBytes(24);

const resend: Kit = {
  provider: "RESEND",
  done: 200,
  fields: { signingKey: `whsec_${RESEND_KEY.toString("base64")}` },
  event(mail, happening) {
    const { kind } = happening;
    const types = {
      ...{ permanent: "email.bounced", temporary: "email.bounced", complaint: "email.complained" },
      ...{ dropped: "email.suppressed", delayed: "email.delivery_delayed", unsubscribed: "contact.updated" },
      unknown: "email.something_new",
    };
    const { reply, status } = replyOf(happening);
    const code = status && !reply.includes(status) ? `smtp; ${status} ${reply}` : `smtp; ${reply}`;
    const bounce = {
      ...{ message: "The recipient's email provider sent a bounce message.", subType: "General" },
      ...{ type: kind === "permanent" ? "Permanent" : "Transient", diagnosticCode: [code] },
    };
    return {
      type: types[kind],
      created_at: "2026-11-20T09:00:00.000Z",
      data: {
        ...{ created_at: "2026-11-20T08:59:00.000Z", email_id: "1c5f4b26-0000-4000-8000-8d2f3b7c9a11" },
        message_id: `<${messageIdOf(mail, "sender.example")}>`,
        ...{ from: "News <news@sender.example>", to: [EMAIL], subject: "Hello", tags: {} },
        ...("reply" in happening && { bounce }),
        ...(kind === "dropped" && { suppressed: { message: "On the list.", type: "OnAccountSuppressionList" } }),
      },
    };
  },
  fieldsOf: (event) => event.data.bounce ?? event.data,
  request(_vault, _source, event, at = Date.now()) {
    const body = JSON.stringify(event);
    const [id, timestamp] = [unique("msg"), String(Math.floor(at / 1_000))];
    const signature = createHmac("sha256", RESEND_KEY).update(`${id}.${timestamp}.${body}`).digest("base64");
    const signatures = `v1,${randomBytes(32).toString("base64")} v1,${signature}`;
    return { body, headers: { "svix-id": id, "svix-timestamp": timestamp, "svix-signature": signatures } };
  },
  parse: (event) => resendSource(NO_VAULT).parse([event]),
};

const mailjet: Kit = {
  provider: "MAILJET",
  done: 200,
  fields: {},
  event(mail, happening) {
    const { kind } = happening;
    const events = {
      ...{ permanent: "bounce", temporary: "bounce", complaint: "spam", dropped: "blocked", delayed: "sent" },
      ...{ unsubscribed: "unsub", unknown: "something_new" },
    };
    const { reply, status } = replyOf(happening);
    return {
      ...{ event: events[kind], time: 1_795_000_000, MessageID: 13_792_286_917_004_336 },
      Message_GUID: "1ab23cd4-0000-4000-8000-7e6f5a4b3c2d",
      ...{ email: EMAIL, mj_campaign_id: 0, mj_contact_id: 1, customcampaign: "", Payload: "" },
      CustomID: headerOf("MAILJET", mail),
      ...{ blocked: kind === "permanent", hard_bounce: kind === "permanent", error_related_to: "recipient" },
      error: kind === "dropped" ? "preblocked" : "",
      comment: status && !reply.includes(status) ? `${status} ${reply}` : reply,
    };
  },
  fieldsOf: (event) => event,
  request: byPassword,
  parse: (event) => mailjetSource(NO_VAULT).parse([event]),
};

const sparkpost: Kit = {
  provider: "SPARKPOST",
  done: 200,
  fields: {},
  event(mail, happening) {
    const { kind } = happening;
    const types = {
      ...{ permanent: "bounce", temporary: "bounce", complaint: "spam_complaint", dropped: "policy_rejection" },
      ...{ delayed: "delay", unsubscribed: "list_unsubscribe", unknown: "something_new" },
    };
    const { reply, status } = replyOf(happening);
    const raw_reason = status && !reply.includes(status) ? `${reply} (${status})` : reply;
    return {
      msys: {
        [kind === "unsubscribed" ? "unsubscribe_event" : "message_event"]: {
          ...{ type: types[kind], bounce_class: kind === "permanent" ? "10" : "20", customer_id: "1" },
          ...{ error_code: "550", event_id: unique("92356927693813856"), message_id: "000443ee14578172be22" },
          ...{
            msg_from: "news@sender.example",
            msg_size: "1337",
            num_retries: "0",
            rcpt_to: EMAIL,
            raw_rcpt_to: EMAIL,
          },
          ...{ raw_reason, reason: reply, rcpt_meta: JSON.parse(headerOf("SPARKPOST", mail)).metadata, rcpt_tags: [] },
          ...{ fbtype: "abuse", timestamp: "1795000000", transmission_id: "65832150921904138" },
        },
      },
    };
  },
  fieldsOf: (event) => event.msys.message_event ?? event.msys.unsubscribe_event,
  request: (vault, source, event) => byPassword(vault, source, Array.isArray(event) ? event : [event]),
  parse: (event) => sparkpostSource(NO_VAULT).parse([event]),
};

/** A report as one line. */
export const shown = (report: ParsedReport): string => {
  if ("unreadable" in report) return `unreadable: ${report.unreadable}`;
  if ("machine" in report) return `${report.machine} by a machine at ${report.at}`;
  const detail = report.suppressAs ?? (report.isSendersFault ? "sender's" : undefined);
  return detail === undefined ? report.kind : `${report.kind}, ${detail}`;
};

/** A log like the API's, whose lines a test reads. */
export const keptLog = (write: (line: string) => void) => pino({ serializers: { err: scrubError } }, { write });

export const KITS: readonly Kit[] = [ses, sendGrid, postmark, mailgun, brevo, resend, mailjet, sparkpost];
