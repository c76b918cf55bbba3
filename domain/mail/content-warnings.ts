import { Parser } from "htmlparser2";
import { charactersIn } from "../audience/rules.ts";
import { UNREAD, withinLimits } from "./html-limits.ts";
import type { MessageContent, ShownMessage } from "./message.ts";
import { splitTemplate } from "./template.ts";

/** A mail that could be better, and may be sent. */
export interface ContentWarning {
  kind: (typeof WARNINGS)[number];
  /** Places in the mail, characters of the subject, or bytes of the HTML. */
  count: number;
}
export const WARNINGS = [
  ...(["image_without_text", "empty_link", "relative_link", "insecure_link", "bare_address"] as const),
  ...(["no_postal_address", "placeholder", "long_subject", "large"] as const),
] as const;

/** Phones cut longer ones. */
export const MAX_SUBJECT_SHOWN = 60;
/** Gmail shows a longer mail in part. */
export const MAX_BYTES_SHOWN = 102_000;
/** Pixels: a smaller image shows nothing. */
const SMALLEST_IMAGE = 10;

/** As templates mark a text that is to be written. */
const PLACEHOLDER = /\[\p{L}[^[\]\n]{2,200}\]/gu;

/** @param shown the mail of one person @param hasAddress the mails of the team have its postal address */
export function contentWarnings(shown: ShownMessage, hasAddress: boolean): ContentWarning[] {
  const counts = new Map<ContentWarning["kind"], number>();
  const note = (kind: ContentWarning["kind"], count = 1) => counts.set(kind, (counts.get(kind) ?? 0) + count);
  const notePlaceholders = (text: string) => note("placeholder", text.match(PLACEHOLDER)?.length ?? 0);
  const open: string[] = [];
  const handler = withinLimits({
    onopentag(name, { alt = "", href, width }) {
      open.push(name);
      const isSeen = width === undefined || Number.parseInt(width, 10) > SMALLEST_IMAGE;
      if (name === "img" && alt.trim() === "" && isSeen) note("image_without_text");
      const kind = name === "a" && href !== undefined ? linkProblem(href.trim()) : undefined;
      if (kind) note(kind);
    },
    ontext(text) {
      if (open.some((name) => UNREAD.has(name))) return;
      notePlaceholders(text);
      if (open.includes("a")) return;
      const found = text.match(/\b(?:https?:\/\/|www\.)\w/gi)?.length ?? 0;
      if (found > 0) note("bare_address", found);
    },
    onclosetag() {
      open.pop();
    },
  });
  new Parser(handler).end(shown.html);
  if (!hasAddress) note("no_postal_address");
  notePlaceholders(shown.subject);
  const characters = charactersIn(shown.subject);
  if (characters > MAX_SUBJECT_SHOWN) note("long_subject", characters);
  const bytes = Buffer.byteLength(shown.html);
  if (bytes > MAX_BYTES_SHOWN) note("large", bytes);
  return WARNINGS.flatMap((kind) => ({ kind, count: counts.get(kind) ?? 0 })).filter(({ count }) => count > 0);
}

function linkProblem(href: string): ContentWarning["kind"] | undefined {
  if (href === "" || href === "#" || /^https?:\/*$/i.test(href)) return "empty_link";
  if (/^http:/i.test(href)) return "insecure_link";
  return /^(?:[a-z][a-z0-9+.-]*:|#)/i.test(href) ? undefined : "relative_link";
}

/** Names that a person may lack. */
const PRINTED = /^\{\{-?\s*(first_name|last_name|fields\.[a-z][a-z0-9_]*)(?![\w.])(?!.*\|\s*default\b)/s;

/** Merge tags that print nothing for a person without a value: no fallback, and no condition that names them. */
export function tagsWithoutFallback({ subject, html }: Pick<MessageContent, "subject" | "html">): string[] {
  const parts = [subject, html].flatMap((source) =>
    splitTemplate(source).map(({ begin, end, kind }) => ({ kind, text: source.slice(begin, end) })),
  );
  const steering = parts.filter(({ kind }) => kind === "tag").map(({ text }) => text);
  const printed = parts.flatMap(({ kind, text }) => (kind === "output" ? (PRINTED.exec(text)?.[1] ?? []) : []));
  return [...new Set(printed)].filter((name) => !steering.some((text) => text.includes(name)));
}
