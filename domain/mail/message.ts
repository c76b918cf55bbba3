import { randomBytes } from "node:crypto";
import { certainlyShowsLink, isInTheOpen } from "./certain-link.ts";
import { assertOutOfReach } from "./footer-reach.ts";
import { encodeHeaderText, encodeMailbox, toWireAddress, UnsendableError } from "./header.ts";
import { findLink, type LinkState } from "./html-document.ts";
import { mayMoveEnd } from "./moved-end.ts";
import { RenderBudget } from "./render-budget.ts";
import {
  compileTemplate,
  escapeHtml,
  type FieldMergeValues,
  type FieldTag,
  fieldTagsOf,
  fieldValuesOf,
  longestFieldValue,
  type MergeValues,
  splitTemplate,
  type Template,
  TemplateError,
} from "./template.ts";
import { compileText, deriveText, type TextTemplate } from "./text-part.ts";
import { BODY_END, type BodyLink, findBodyLinks, type TrackedUrls, trackBody, withMailToken } from "./tracked-body.ts";
import { assertMessageSize, encodePart } from "./transfer-encoding.ts";

export { UnsendableError } from "./header.ts";

/** The content that all recipients of a send share. */
export interface MessageContent {
  /** Template of the subject */
  subject: string;
  /** Template of the HTML body */
  html: string;
  fromEmail: string;
  fromName?: string | null | undefined;
  replyTo?: string | null | undefined;
  /** Plain text above the unsubscribe link that is added to a body without one */
  footerText?: string | undefined;
  /** Set where links are to be tracked: all but those to the service's own pages at `ownUrl` */
  tracking?: { ownUrl: string } | undefined;
}

/** One recipient of a message. */
export interface MessageRecipient {
  email: string;
  firstName?: string | null | undefined;
  lastName?: string | null | undefined;
  listName?: string | null | undefined;
  /** Of a contact: values of custom fields by name */
  fields?: FieldMergeValues | undefined;
  /** Absolute http(s) URL, all ASCII */
  unsubscribeUrl: string;
  /** `mailto:` URL of a mail that unsubscribes, all ASCII */
  unsubscribeMailto?: string | undefined;
  /** Envelope sender, all ASCII; the sender's address unless given */
  envelopeFrom?: string | undefined;
  /** Fills the placeholder of tracked URLs: letters, digits, `.`, `-` and `_` */
  mailToken?: string | undefined;
  /** `left@right`, without angle brackets */
  messageId: string;
  date: Date;
  /** A header for the account's provider, as a whole line with its CRLF, all ASCII */
  providerHeader?: string | undefined;
}

export interface MessageEnvelope {
  from: string;
  to: string;
  /** A local part is not ASCII: the server must support SMTPUTF8. */
  smtpUtf8: boolean;
}

export interface FilledMessage {
  envelope: MessageEnvelope;
  /** A complete RFC 5322 message: lines end with CRLF, have at most 998 octets, and none starts with a dot. */
  message: Buffer;
  /** Header fields that come before it and are being made: its DKIM signatures */
  signature?: Promise<Buffer> | undefined;
}

export interface ComposedMessage {
  /** Custom fields that subject or body read, such as `fields.city` */
  fieldTags: readonly FieldTag[];
  /**
   * Builds one recipient's message.
   * @param limitMs CPU time that it may take, in milliseconds; by default as long as a recipient of a send may take
   * @throws {UnsendableError} when this recipient cannot be mailed
   */
  fill(recipient: MessageRecipient, limitMs?: number): FilledMessage;
}

const DEFAULT_FOOTER = "You receive this email because you are on our mailing list.";

/** Tags that a footer adds to an author's template. */
const FOOTER_TAGS = 1;

/** All that is derived from a content by reading its HTML, as plain data: it can be made in another thread. */
export interface PreparedContent {
  /** The body, with a footer if it had no unsubscribe link */
  html: string;
  text: TextTemplate;
  /** The links of the body that may be tracked, where that was asked for */
  links?: readonly BodyLink[];
}

/**
 * Reads the HTML of a content: adds the unsubscribe link, and makes the text part. This takes time in proportion to the
 * body, up to some hundred milliseconds, so a process that serves many clients leaves it to `prepareInThread`.
 * @throws {TemplateError} when the body is not a usable template, is too large to be converted or hides the link
 */
export function prepareContent(content: MessageContent): PreparedContent {
  const { html: source, footerText = DEFAULT_FOOTER, tracking } = content;
  const { source: html, template } = withUnsubscribeLink(source, footerText);
  const text = deriveText(html, template);
  return tracking ? { html, text, links: findBodyLinks(html, splitTemplate(html), tracking.ownUrl) } : { html, text };
}

/**
 * Builds the MIME structure and parses the templates, once per send.
 * @param prepared of the same content
 * @param tracked URLs for its links, where they are to be tracked; the text part keeps the author's
 * @throws {TemplateError} when subject or body is not a usable template
 * @throws {UnsendableError} when a header cannot carry the sender's address or name
 */
export function composeMessage(
  content: MessageContent,
  prepared = prepareContent(content),
  tracked?: TrackedUrls,
): ComposedMessage {
  const from = toWireAddress(content.fromEmail);
  const replyTo = content.replyTo ? toWireAddress(content.replyTo) : undefined;
  const subject = compileTemplate(content.subject, { escape: false, singleLine: true });
  // After the footer: whether the unsubscribe link is seen was decided on the author's body.
  const source = tracked ? trackBody(prepared.html, prepared.links ?? [], tracked, MAX_SHOWN_BYTES) : prepared.html;
  const html = compileTemplate(source, { escape: true, ownTags: FOOTER_TAGS });
  const htmlPart = encodePart(tracked ? withMailToken(html, tracked.placeholder) : html, escapeHtml);
  const textPart = encodePart(compileText(prepared.text));

  // Neither quoted-printable nor base64 contains "=_", so no content can contain the boundary.
  const boundary = `=_mailkeel_${randomBytes(12).toString("hex")}`;
  const sender = [
    `From: ${encodeMailbox(content.fromName, from.address, "From: ".length)}\r\n`,
    replyTo ? `Reply-To: ${replyTo.address}\r\n` : "",
    "To: ",
  ].join("");
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
    `Content-Transfer-Encoding: ${htmlPart.transferEncoding}`,
    "",
    "",
  ].join("\r\n");
  const end = `\r\n--${boundary}--\r\n`;
  const fixedSubject = subject.plain?.tags.length === 0 ? encodeSubject(subject, {}) : undefined;
  const isPlain = subject.plain !== undefined && textPart.isPlain && htmlPart.isPlain;

  const fill = (recipient: MessageRecipient, limitMs?: number): FilledMessage => {
    const to = toWireAddress(recipient.email);
    const values: MergeValues = {
      email: recipient.email,
      first_name: recipient.firstName,
      last_name: recipient.lastName,
      list_name: recipient.listName,
      unsubscribe_url: recipient.unsubscribeUrl,
      mail_token: recipient.mailToken,
      fields: recipient.fields,
    };
    const budget = isPlain ? undefined : new RenderBudget(limitMs);
    const message =
      `${sender}${to.address}\r\n` +
      `Subject: ${fixedSubject ?? encodeSubject(subject, values, budget)}\r\n` +
      `Date: ${formatDate(recipient.date)}\r\n` +
      `Message-ID: <${inAngleBrackets(recipient.messageId, MESSAGE_ID)}>\r\n` +
      `List-Unsubscribe: <${inAngleBrackets(recipient.unsubscribeUrl, UNSUBSCRIBE_URL)}>${mailtoForm(recipient)}\r\n` +
      `List-Unsubscribe-Post: List-Unsubscribe=One-Click\r\n${recipient.providerHeader ?? ""}${beforeText}` +
      textPart.encode(values, budget) +
      beforeHtml +
      htmlPart.encode(values, budget) +
      end;
    budget?.check();
    assertMessageSize(message.length);
    const smtpUtf8 = from.smtpUtf8 || to.smtpUtf8;
    // Only an internationalised local part is not ASCII.
    const encoding = smtpUtf8 || replyTo?.smtpUtf8 ? "utf8" : "latin1";
    return {
      envelope: { from: recipient.envelopeFrom ?? from.address, to: to.address, smtpUtf8 },
      message: Buffer.from(message, encoding),
    };
  };
  return {
    fieldTags: fieldTagsOf(new Set([...subject.variables, ...html.variables])),
    fill(recipient, limitMs) {
      try {
        return fill(recipient, limitMs);
      } catch (error) {
        if (error instanceof TemplateError) throw new UnsendableError(error.message, { cause: error });
        throw error;
      }
    },
  };
}

const encodeSubject = (subject: Template, values: MergeValues, budget?: RenderBudget): string =>
  encodeHeaderText(subject.render(values, budget).trim(), "Subject: ".length);

const UNSUBSCRIBE_URL = /^https?:\/\/[\x21-\x3b\x3d\x3f-\x7e]{1,900}$/;
const UNSUBSCRIBE_MAILTO = /^mailto:[\w-]{1,64}@[\w.-]{1,255}\?subject=\w{1,30}$/;
const MESSAGE_ID = /^[\w!#$%&'*+/=?^`{|}~.-]{1,200}@[\w.-]{1,255}$/;

function inAngleBrackets(value: string, pattern: RegExp): string {
  if (!pattern.test(value)) throw new UnsendableError("value does not fit its header");
  return value;
}

/** The second form of `List-Unsubscribe` (RFC 2369), on a line of its own. */
const mailtoForm = ({ unsubscribeMailto: url }: MessageRecipient): string =>
  url === undefined ? "" : `,\r\n <${inAngleBrackets(url, UNSUBSCRIBE_MAILTO)}>`;

let lastDate = { second: -1, text: "" };

/** Formats a date as in "Mon, 05 Jan 2026 09:30:00 +0000". Cached, because many mails share a second. */
function formatDate(date: Date): string {
  const second = Math.floor(date.getTime() / 1_000);
  if (second !== lastDate.second) lastDate = { second, text: date.toUTCString().replace("GMT", "+0000") };
  return lastDate.text;
}

/** Declarations that no style sheet of the body overrules; also for mail programs that do not know `all`. */
const IN_SIGHT =
  "all:initial!important;visibility:visible!important;opacity:1!important;height:auto!important;max-height:none!important;" +
  "overflow:visible!important;text-indent:0!important;margin:0!important;transform:none!important;mso-hide:none!important;" +
  "letter-spacing:normal!important;direction:ltr!important;unicode-bidi:plaintext!important;" +
  "font-size:12px!important;line-height:18px!important;font-family:sans-serif!important;color:#595959!important;";

/** Its number is the highest there is, and of equals the last is painted above the others. */
const ON_TOP =
  "display:block!important;position:relative!important;z-index:2147483647!important;clear:both!important;" +
  "padding:24px 16px!important;text-align:left!important;background-color:#ffffff!important";

/** Gmail cuts off a mail after 102 KB. The rest is left to the values of merge tags. */
const MAX_SHOWN_BYTES = 90_000;
/** Nobody looks for a link behind more empty lines. */
const MAX_BREAKS = 300;

/** Whether a reader may not reach the end of a body. */
const isLong = (html: string): boolean =>
  Buffer.byteLength(html) > MAX_SHOWN_BYTES || (html.match(/<br(?![a-z0-9:_-])/gi) ?? []).length > MAX_BREAKS;

/** Stands for the link of the footer, which is told apart from the body's own by it. */
const FOOTER_URL = "https://footer.invalid/u";

/** @throws {TemplateError} `hidden_link` */
function hiddenLink(message: string): never {
  throw new TemplateError({ kind: "hidden_link", message });
}

/**
 * Adds a footer with the unsubscribe link unless the body certainly shows the link itself.
 * @throws {TemplateError} `hidden_link`, when the body hides its own link, or would hide the footer
 */
function withUnsubscribeLink(source: string, footerText: string): { source: string; template: Template } {
  const template = compileTemplate(source, { escape: true });
  const { state, ...samples } = readSamples(template);
  const isEndReached = !isLong(source) && !samples.isLong;
  if (state === "shown" && isEndReached && certainlyShowsLink(source, splitTemplate(source)))
    return { source, template };
  if (state === "hidden") {
    hiddenLink("the style of its unsubscribe link, or of an element around it, hides the link; show it or remove it");
  }
  const sentence = escapeHtml(footerText).replace(/[{}]/g, (brace) => `&#${brace.charCodeAt(0)};`);
  const footer =
    `<div style="${IN_SIGHT}${ON_TOP}">${sentence}<br style="all:initial!important">` +
    `<a href="{{ unsubscribe_url }}" style="${IN_SIGHT}display:inline!important;` +
    `text-decoration:underline!important">Unsubscribe</a></div>`;
  // After the end of the body, only elements that show nothing may follow the footer.
  const bodyEnd = BODY_END.exec(source)?.index;
  // The source has no </body>, or has it inside a comment or a condition.
  const places = bodyEnd === undefined ? [source.length] : [bodyEnd, source.length];
  let isShown = false;
  // At the beginning, no element is around it.
  for (const place of [...places, 0]) {
    if (place === 0 && !isShown && source !== "") break;
    const withFooter = source.slice(0, place) + footer + source.slice(place);
    const compiled = compileTemplate(withFooter, { escape: true, ownTags: FOOTER_TAGS });
    if (readSamples(compiled).state !== "shown") continue;
    isShown = true;
    if (place > 0 && !isEndReached) continue;
    const marked = `${source.slice(0, place)}<a href="${FOOTER_URL}">Unsubscribe</a>${source.slice(place)}`;
    if (place > 0 && !isInTheOpen(marked, splitTemplate(marked), FOOTER_URL)) continue;
    const parts = splitTemplate(source);
    if (place > 0 && mayMoveEnd(source, parts)) continue;
    assertOutOfReach(source, parts, place === 0);
    return { source: withFooter, template: compiled };
  }
  hiddenLink(
    "the end of its body hides what follows, so no unsubscribe link can be added; close comments and elements",
  );
}

/**
 * Whether recipients see the link and the end of the body, with a name or without: of both, what is worse. A body is long
 * if it is with custom fields of the greatest length.
 */
function readSamples(template: Template): { state: LinkState; isLong: boolean } {
  // Random, so that no condition knows these recipients.
  const word = () => randomBytes(6).toString("hex");
  const url = `https://${word()}.com/u/${word()}`;
  const email = `${word()}@${word()}.com`;
  const names = { first_name: word(), last_name: word(), list_name: word() };
  const fieldTags = fieldTagsOf(template.variables);
  const filled = { email, ...names, unsubscribe_url: url };
  const withFields = { ...filled, fields: fieldValuesOf(fieldTags, word) };
  const bodies = [withFields, { email, unsubscribe_url: url }].map((values) => template.render(values));
  const states = bodies.map((body) => findLink(body, url));
  const state = states.find((each) => each === "hidden") ?? states.find((each) => each === "absent") ?? "shown";
  const longest = () => template.render({ ...filled, fields: fieldValuesOf(fieldTags, longestFieldValue) });
  return { state, isLong: bodies.some(isLong) || (fieldTags.length > 0 && isLong(longest())) };
}
