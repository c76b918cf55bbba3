import { randomBytes } from "node:crypto";
import type { MailFooter } from "../../db/entities/team.ts";
import { wordsOf } from "../languages/words.ts";
import { encodeHeaderText, encodeMailbox, toWireAddress, UnsendableError } from "./header.ts";
import {
  compileTemplate,
  escapeHtml,
  type FieldMergeValues,
  type FieldTag,
  fieldTagsOf,
  type MergeValues,
  splitTemplate,
  type Template,
} from "./template.ts";
import { TemplateError } from "./template-problem.ts";
import { compileText, deriveText, type TextTemplate } from "./text-part.ts";
import { type BodyLink, findBodyLinks, type TrackedUrls, trackBody, withMailToken } from "./tracked-body.ts";
import { assertMessageSize, encodePart } from "./transfer-encoding.ts";
import { addressLine, FOOTER_TAGS, withFooter } from "./unsubscribe-link.ts";
import { encodeUrlValues } from "./url-tags.ts";

export interface MessageContent {
  subject: string;
  html: string;
  fromEmail: string;
  fromName?: string | null | undefined;
  footer?: MailFooter | undefined;
  /** For the web: without a link of one person below it. */
  isPublic?: boolean;
  /** Where links are tracked for some: all but those below `ownUrl`. */
  tracking?: { ownUrl: string } | undefined;
}

export interface MessageRecipient {
  email: string;
  firstName?: string | null | undefined;
  lastName?: string | null | undefined;
  listName?: string | null | undefined;
  fields?: FieldMergeValues | undefined;
  /** All ASCII. */
  unsubscribeUrl: string;
  /** All ASCII. */
  trackingUrl?: string | undefined;
  /** All ASCII. */
  webUrl?: string | undefined;
  /** All ASCII. */
  unsubscribeMailto?: string | undefined;
  /** The sender's address unless given. */
  envelopeFrom?: string | undefined;
  /** Fills the placeholder of tracked URLs: letters, digits, `.`, `-` and `_`. Without it the mail has the author's links and no pixel. */
  mailToken?: string | undefined;
  messageId: string;
  date: Date;
  /** A whole line with its CRLF, all ASCII. */
  providerHeader?: string | undefined;
}

export interface FilledMessage {
  envelope: {
    from: string;
    to: string;
    /** Of the header, where `from` is a return path. */
    sender?: string;
    /** The server must support SMTPUTF8. */
    smtpUtf8: boolean;
  };
  /** RFC 5322: lines end with CRLF, have at most 998 octets, and none starts with a dot. */
  message: Buffer;
  /** Header fields that come before it: DKIM signatures. */
  signature?: Promise<Buffer> | undefined;
}

export interface ComposedMessage {
  fieldTags: readonly FieldTag[];
  /** @throws {UnsendableError} when this recipient cannot be mailed */
  fill(recipient: MessageRecipient): FilledMessage;
}

/** Gmail cuts off a mail after 102 KB. The rest is left to the values of merge tags. */
const MAX_SHOWN_BYTES = 90_000;

/** Plain data: it can be made in another thread. */
export interface PreparedContent {
  /** With a footer if the body lacks a part of it, and with encoded values in its URLs. */
  html: string;
  text: TextTemplate;
  links?: readonly BodyLink[];
}

/** Reads the HTML, which takes up to some hundred milliseconds: see `prepareInThread`. @throws {TemplateError} */
export function prepareContent(content: MessageContent): PreparedContent {
  const { source: html, template } = withFooter(encodeUrlValues(content.html), content);
  const text = deriveText(html, template, wordsOf(content.footer?.language ?? "en").footer.unsubscribe);
  const { tracking } = content;
  return tracking ? { html, text, links: findBodyLinks(html, splitTemplate(html), tracking.ownUrl) } : { html, text };
}

const compileSubject = (source: string) => compileTemplate(source, { escape: false, singleLine: true });
export const renderSubject = (source: string, values: MergeValues): string => compileSubject(source).render(values);
const compileHtml = (source: string) => compileTemplate(source, { escape: true, ownTags: FOOTER_TAGS });

function compileTracked({ html, links = [] }: PreparedContent, urls: TrackedUrls) {
  return withMailToken(compileHtml(trackBody(html, links, urls, MAX_SHOWN_BYTES)), urls.placeholder);
}

/** The values of merge tags in the mail of a recipient. */
export const mergeValuesOf = (
  recipient: Omit<MessageRecipient, "messageId" | "date">,
  postalAddress?: string,
): MergeValues => ({
  email: recipient.email,
  first_name: recipient.firstName,
  last_name: recipient.lastName,
  list_name: recipient.listName,
  unsubscribe_url: recipient.unsubscribeUrl,
  tracking_url: recipient.trackingUrl,
  web_url: recipient.webUrl,
  postal_address: postalAddress,
  mail_token: recipient.mailToken,
  fields: recipient.fields,
});

/** Subject and parts of a mail for one reader, with the author's links. */
export interface ShownMessage {
  subject: string;
  html: string;
  text: string;
}

/** The parts of a mail that its writer and its team write. */
export type WrittenContent = Pick<MessageContent, "subject" | "html" | "footer" | "isPublic" | "tracking">;

/** The parts that `composeMessage` encodes, for one recipient. @throws {TemplateError} */
export function showMessage(content: WrittenContent, person: MergeValues): ShownMessage {
  const { html, text } = prepareContent({ ...content, fromEmail: "" });
  const values = { ...person, postal_address: addressLine(content.footer) };
  return {
    subject: renderSubject(content.subject, values),
    html: compileHtml(html).render(values),
    text: compileText(text).render(values),
  };
}

/**
 * Once per send. @param prepared of the same content @param tracked URLs of mails with a `mailToken`; their text part keeps the author's
 * @throws {TemplateError | UnsendableError} for the templates, and for the sender's address or name
 */
export function composeMessage(
  content: MessageContent,
  prepared = prepareContent(content),
  tracked?: TrackedUrls,
): ComposedMessage {
  const from = toWireAddress(content.fromEmail);
  const subject = compileSubject(content.subject);
  const first = tracked ? compileTracked(prepared, tracked) : compileHtml(prepared.html);
  const firstPart = encodePart(first, escapeHtml);
  // Where all are tracked, no mail needs it.
  let plain = tracked ? undefined : firstPart;
  const plainPart = () => {
    plain ??= encodePart(compileHtml(prepared.html), escapeHtml);
    return plain;
  };
  const textPart = encodePart(compileText(prepared.text));

  // Neither quoted-printable nor base64 contains "=_", so no content can contain the boundary.
  const boundary = `=_mailkeel_${randomBytes(12).toString("hex")}`;
  const sender = `From: ${encodeMailbox(content.fromName, from.address, "From: ".length)}\r\nTo: `;
  const beforeText = [
    "MIME-Version: 1.0",
    `Content-Type: multipart/alternative;\r\n boundary="${boundary}"`,
    "",
    `--${boundary}`,
    "Content-Type: text/plain; charset=utf-8",
    `Content-Transfer-Encoding: ${textPart.transferEncoding}`,
    "",
    "",
  ].join("\r\n");
  const beforeHtml = [
    "",
    `--${boundary}`,
    "Content-Type: text/html; charset=utf-8",
    "Content-Transfer-Encoding: ",
  ].join("\r\n");
  const end = `\r\n--${boundary}--\r\n`;
  const postalAddress = addressLine(content.footer);
  const fixedSubject = subject.plain?.tags.length === 0 ? encodeSubject(subject, {}) : undefined;

  const fill = (recipient: MessageRecipient): FilledMessage => {
    const to = toWireAddress(recipient.email);
    const values = mergeValuesOf(recipient, postalAddress);
    const htmlPart = recipient.mailToken === undefined ? plainPart() : firstPart;
    const message =
      `${sender}${to.address}\r\n` +
      `Subject: ${fixedSubject ?? encodeSubject(subject, values)}\r\n` +
      `Date: ${formatDate(recipient.date)}\r\n` +
      `Message-ID: <${inAngleBrackets(recipient.messageId, MESSAGE_ID)}>\r\n` +
      `List-Unsubscribe: <${inAngleBrackets(recipient.unsubscribeUrl, UNSUBSCRIBE_URL)}>${mailtoForm(recipient)}\r\n` +
      `List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n${recipient.providerHeader ?? ""}${beforeText}` +
      textPart.encode(values) +
      `${beforeHtml}${htmlPart.transferEncoding}\r\n\r\n` +
      htmlPart.encode(values) +
      end;
    assertMessageSize(message.length);
    const smtpUtf8 = from.smtpUtf8 || to.smtpUtf8;
    // Only an internationalised local part is not ASCII.
    const encoding = smtpUtf8 ? "utf8" : "latin1";
    return {
      envelope: {
        from: recipient.envelopeFrom ?? from.address,
        to: to.address,
        smtpUtf8,
        ...(recipient.envelopeFrom !== undefined && { sender: from.address }),
      },
      message: Buffer.from(message, encoding),
    };
  };
  return {
    fieldTags: fieldTagsOf(new Set([...subject.variables, ...first.variables])),
    fill(recipient) {
      try {
        return fill(recipient);
      } catch (error) {
        if (error instanceof TemplateError) throw new UnsendableError(error.message, { cause: error });
        throw error;
      }
    },
  };
}

const encodeSubject = (subject: Template, values: MergeValues): string =>
  encodeHeaderText(subject.render(values).trim(), "Subject: ".length);

const UNSUBSCRIBE_URL = /^https?:\/\/[\x21-\x3b\x3d\x3f-\x7e]{1,900}$/;
const UNSUBSCRIBE_MAILTO = /^mailto:[\w-]{1,64}@[\w.-]{1,255}\?subject=\w{1,30}$/;
const MESSAGE_ID = /^[\w!#$%&'*+/=?^`{|}~.-]{1,200}@[\w.-]{1,255}$/;

function inAngleBrackets(value: string, pattern: RegExp): string {
  if (!pattern.test(value)) throw new UnsendableError("value does not fit its header");
  return value;
}

/** RFC 2369, on a line of its own. */
const mailtoForm = ({ unsubscribeMailto: url }: MessageRecipient): string =>
  url === undefined ? "" : `,\r\n <${inAngleBrackets(url, UNSUBSCRIBE_MAILTO)}>`;

let lastDate = { second: -1, text: "" };

/** Such as "Mon, 05 Jan 2026 09:30:00 +0000". Cached, because many mails share a second. */
function formatDate(date: Date): string {
  const second = Math.floor(date.getTime() / 1_000);
  if (second !== lastDate.second) lastDate = { second, text: date.toUTCString().replace("GMT", "+0000") };
  return lastDate.text;
}
