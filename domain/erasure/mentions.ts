import { domainToASCII } from "node:url";
import { addressDomain, normaliseAddress } from "../address.ts";

/** Fields of a person's record that are redacted although they do not name the address. */
const BLANK: Readonly<Record<string, unknown>> = {
  first_name: null,
  last_name: null,
  fields: {},
  tracking_consent: null,
};

const PERCENT_ENCODED = /(?:%[0-9a-f]{2})+/gi;
const ESCAPED_IN_JSON = /\\u([0-9a-f]{4})/gi;
/** Characters that no address contains, or that commonly stand around one. */
const BETWEEN_ADDRESSES = /[\s"<>()[\]{},;:\\]+/;
const CONTINUES_BEFORE = /[\p{L}\p{N}._+-]$/u;
/** The ending of a file's name continues none. */
const CONTINUES_BEHIND = /^(?:[\p{L}\p{N}-]|\.(?!(?:csv|tsv|txt)(?![\p{L}\p{N}.-]))[\p{L}\p{N}])/u;

function percentDecoded(text: string): string {
  return text.replace(PERCENT_ENCODED, (encoded) => {
    try {
      return decodeURIComponent(encoded);
    } catch {
      return encoded;
    }
  });
}

/** Finds one address in texts: in any case, Unicode form or spelling of its domain, also where a URL or JSON escapes it. */
export interface Mentions {
  /** Lower case ASCII that every text with the address contains; empty where there is none. */
  part: string;
  in(text: string): boolean;
  /** JSON of records without the person: the address becomes `placeholder`, names and fields beside it are blanked. */
  redact(json: string, placeholder: string): string;
}

/** The addresses in a text, as addresses are compared. */
export const addressesIn = (text: string): string[] =>
  text.split(BETWEEN_ADDRESSES).flatMap((word) => (word.includes("@") ? (normaliseAddress(word) ?? []) : []));

export function mentionsOf(email: string): Mentions {
  const local = email.slice(0, email.lastIndexOf("@"));
  const spellings = [...new Set([email, `${local}@${domainToASCII(addressDomain(email))}`])];
  const [part = ""] = (local.match(/[a-z0-9]+/g) ?? []).sort((a, b) => b.length - a.length);

  const standsIn = (text: string, spelling: string): boolean => {
    for (let at = text.indexOf(spelling); at >= 0; at = text.indexOf(spelling, at + 1)) {
      const before = text.slice(Math.max(0, at - 2), at);
      const behind = text.slice(at + spelling.length, at + spelling.length + 5);
      if (!CONTINUES_BEFORE.test(before) && !CONTINUES_BEHIND.test(behind)) return true;
    }
    return false;
  };
  const isIn = (text: string): boolean => {
    if (!text.toLowerCase().includes(part)) return false;
    const plain = text.replace(ESCAPED_IN_JSON, (_, code: string) => String.fromCharCode(Number.parseInt(code, 16)));
    return [plain, percentDecoded(plain)].some((each) => {
      const compared = each.toLowerCase().normalize("NFC");
      if (spellings.some((spelling) => standsIn(compared, spelling))) return true;
      return addressesIn(compared).includes(email);
    });
  };

  const redacted = (value: unknown, placeholder: string): unknown => {
    if (typeof value === "string") {
      if (!isIn(value)) return value;
      return normaliseAddress(value) === email ? placeholder : null;
    }
    if (Array.isArray(value)) return value.map((each) => redacted(each, placeholder));
    if (typeof value !== "object" || value === null) return value;
    const isPerson = Object.values(value).some((each) => typeof each === "string" && isIn(each));
    return Object.fromEntries(
      Object.entries(value).map(([name, each]) => [
        name,
        isPerson && Object.hasOwn(BLANK, name) ? BLANK[name] : redacted(each, placeholder),
      ]),
    );
  };
  return { part, in: isIn, redact: (json, placeholder) => JSON.stringify(redacted(JSON.parse(json), placeholder)) };
}
