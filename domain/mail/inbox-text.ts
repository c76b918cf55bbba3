import { Parser } from "htmlparser2";
import { UNREAD } from "./html-limits.ts";

const MAX_SHOWN = 150;
/** Characters of the HTML that are read. */
export const MAX_READ = 16_384;
const STEP = 2_048;

/** They end no word. */
const INLINE = new Set(["a", "abbr", "b", "code", "em", "font", "i", "mark", "s", "small", "span", "strong", "u"]);
/** Characters without a look, by which a preview text keeps the text of its mail away. */
const FILLER = /(?:(?:\u034f|[\u00ad\u2007\u200b\u200c\ufeff])\s*){3}.*$/su;

const HEADING = /^h[1-6]$/;
/** With which a letter greets, in the languages of the service. */
const GREETING =
  /^¡?(?:hi|hello|hey|dear|good (?:morning|day|evening)|hallo|liebe[rs]?|sehr geehrte[rs]?|guten (?:morgen|tag|abend)|bonjour|bonsoir|salut|ch(?:er|ère)s?|hola|buen[oa]s (?:días|tardes)|queridos?|queridas?|estimad[oa]s?)(?=[\s,:!]|$)[^.,:;?!]*[,:!]*$/iu;
const MAX_GREETING = 100;
/** Beside tags that decide what is shown, such as the "else" of a greeting. */
const hasText = (text: string): boolean => text.replace(/\{%.*?%\}/gs, "").trim() !== "";
const isGreeting = (text: string): boolean =>
  text.length <= MAX_GREETING && GREETING.test(text.replace(/\{[{%].*?[%}]\}/gs, "").trim());

/**
 * The text that inboxes show after the subject: a preview text, which the mail itself hides, or else the beginning of its text.
 * @param html its beginning is enough; merge tags stay as they are, and whole: `cutInboxText` shortens what they print
 */
export const inboxText = (html: string): string => readText(html);

/** As `inboxText`, for below a title: without headings and a greeting at its beginning, and to the next heading. */
export const excerptOf = (html: string): string => readText(html, { isExcerpt: true });

function readText(html: string, { isExcerpt = false } = {}): string {
  let text = "";
  let part = "";
  let unread = 0;
  let heading = 0;
  let isEnough = false;
  const endPart = () => {
    const shown = part.trim();
    part = "";
    if (isEnough || shown === "") return;
    const isLeftOut = isExcerpt && (heading > 0 || (!hasText(text) && isGreeting(shown)));
    if (!isLeftOut) text += `${shown} `;
    isEnough = text.length > MAX_SHOWN || (isLeftOut && hasText(text));
  };
  const note = (name: string, change: 1 | -1) => {
    if (!INLINE.has(name)) endPart();
    if (UNREAD.has(name)) unread += change;
    if (HEADING.test(name)) heading += change;
  };
  const parser = new Parser({
    onopentagname: (name) => note(name, 1),
    onclosetag: (name) => note(name, -1),
    ontext: (read) => {
      if (unread === 0 && !isEnough) part += read;
    },
  });
  for (let at = 0; at < Math.min(html.length, MAX_READ) && !isEnough; at += STEP)
    parser.write(html.slice(at, at + STEP));
  endPart();
  return text.replace(FILLER, "").replace(/\s+/g, " ").trim();
}

/** As much of it as is shown. */
export function cutInboxText(text: string): string {
  const letters = [...text];
  return letters.length > MAX_SHOWN ? `${letters.slice(0, MAX_SHOWN).join("").trimEnd()}…` : text;
}
