import { Parser } from "htmlparser2";
import { MERGE_TAGS } from "../../lib/merge-tags.ts";
import { withinLimits } from "./html-limits.ts";
import { assertSize } from "./liquid-source.ts";
import { splitTemplate } from "./template.ts";
import { placeOfValue, withoutTags } from "./tracked-body.ts";

const URL_ATTRIBUTES = new Set(["href", "action", "src"]);
/** No program follows a longer one. */
const MAX_URL_CHARS = 10_000;

const MERGE_TAG = new RegExp(`^\\{\\{-?\\s*(?:(?:${MERGE_TAGS.join("|")})\\b|fields[.[])`);
const ENCODING_FILTER = /\|\s*(?:url_encode|cgi_escape|uri_escape|escape|escape_once|xml_escape)\b/;

/** Outlook shows what these comments hold. */
const CONDITIONAL_COMMENT = /<!--\[if[^\]]{0,100}\]>(?:<!--(?:\s*--)?>)?|(?:<!--)?<!\[endif\]-->/g;

/**
 * Adds `url_encode` to each merge tag that is a parameter's value, or a part of it, in a URL of the body. One that stands for
 * another part of a URL, or for a whole one, is left as it is, and so is one with an encoding of its own.
 * @throws {TemplateError} `syntax` or `limits`
 */
export function encodeUrlValues(source: string): string {
  assertSize(source);
  const parts = splitTemplate(source);
  const html = withoutTags(source, parts).replace(CONDITIONAL_COMMENT, (comment) => " ".repeat(comment.length));
  const outputs = parts.filter(({ kind }) => kind === "output");
  const encoded: string[] = [];
  let at = 0;
  let next = 0;
  const handler = withinLimits({
    onattribute(name, _, quote) {
      if (!URL_ATTRIBUTES.has(name)) return;
      const { begin: urlBegin, end: urlEnd } = placeOfValue(html, parser.startIndex, parser.endIndex, quote);
      for (let output = outputs[next]; output && output.begin < urlEnd; output = outputs[++next]) {
        const { begin, end } = output;
        const tag = source.slice(begin, end);
        const isValue = begin >= urlBegin && endsInValue(html.slice(Math.max(urlBegin, begin - MAX_URL_CHARS), begin));
        if (!isValue || !MERGE_TAG.test(tag) || ENCODING_FILTER.test(tag)) continue;
        const close = end - (tag.endsWith("-}}") ? 3 : 2);
        encoded.push(source.slice(at, close), " | url_encode ");
        at = close;
      }
    },
  });
  const parser = new Parser(handler);
  parser.end(html);
  return encoded.join("") + source.slice(at);
}

/** Whether the value of a parameter follows. An `&` may be written as `&amp;`. */
function endsInValue(url: string): boolean {
  const parameter = url.slice(url.lastIndexOf("&") + 1);
  const text = parameter === url ? url.slice(url.indexOf("?") + 1) : parameter;
  return text !== url && /^[^#=]+=[^#]*$/.test(text);
}
