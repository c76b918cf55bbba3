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

/**
 * The text that inboxes show after the subject: a preview text, which the mail itself hides, or else the beginning of its text.
 * @param html its beginning is enough; merge tags stay as they are, and whole: `cutInboxText` shortens what they print
 */
export function inboxText(html: string): string {
  let text = "";
  let letters = 0;
  let unread = 0;
  let isEnough = false;
  const note = (name: string, change: 1 | -1) => {
    if (UNREAD.has(name)) unread += change;
    if (INLINE.has(name)) return;
    isEnough ||= letters > MAX_SHOWN;
    text += " ";
  };
  const parser = new Parser({
    onopentagname: (name) => note(name, 1),
    onclosetag: (name) => note(name, -1),
    ontext: (part) => {
      if (unread > 0 || isEnough) return;
      text += part;
      letters += part.trim().length;
    },
  });
  for (let at = 0; at < Math.min(html.length, MAX_READ) && !isEnough; at += STEP)
    parser.write(html.slice(at, at + STEP));
  return text.replace(FILLER, "").replace(/\s+/g, " ").trim();
}

/** As much of it as is shown. */
export function cutInboxText(text: string): string {
  const letters = [...text];
  return letters.length > MAX_SHOWN ? `${letters.slice(0, MAX_SHOWN).join("").trimEnd()}…` : text;
}
