import { domainToASCII, domainToUnicode } from "node:url";
// The package itself loads a hundred files.
import isEmail from "validator/lib/isEmail.js";

/** Longest address that the API accepts, in characters. */
export const MAX_ADDRESS_LENGTH = 320;

const MAX_LOCAL_BYTES = 64;
const MAX_LABEL_LENGTH = 63;
/** Longest host name DNS can carry, in its ASCII form. */
const MAX_DOMAIN_LENGTH = 253;

// Quotes would give one mailbox two spellings; invisible characters would make two mailboxes look the same.
const REFUSED_IN_LOCAL = /["\p{C}\p{Z}]/u;
// In the domain too, where DNS leaves them out; the two joiners belong to names in some scripts. No property names the last two,
// a blank Braille pattern and a blank note.
const INVISIBLE = /(?![\u200C\u200D])[\s\p{Cf}\p{Default_Ignorable_Code_Point}\u2800\u{1D159}]/u;

// The lengths are checked here: the library's limit of 254 is below the API's.
const SYNTAX = { ignore_max_length: true } as const;

/** Without the spaces and the invisible characters at the ends, which copies from web pages and spreadsheets bring along. */
function trimAddress(text: string): string {
  let [start, end] = [0, text.length];
  while (start < end && INVISIBLE.test(text.charAt(start))) start++;
  while (end > start && INVISIBLE.test(text.charAt(end - 1))) end--;
  return text.slice(start, end);
}

/**
 * Returns the spelling under which addresses are compared: trimmed, in lower case, in one Unicode form, the domain in
 * Unicode even when it was given in punycode.
 * @returns undefined for an invalid address
 */
export function normaliseAddress(text: string): string | undefined {
  const trimmed = trimAddress(text);
  if (trimmed.length > MAX_ADDRESS_LENGTH || !isEmail.default(trimmed, SYNTAX)) return undefined;
  if (INVISIBLE.test(trimmed)) return undefined;
  const at = trimmed.lastIndexOf("@");
  const local = trimmed.slice(0, at).toLowerCase().normalize("NFC");
  if (REFUSED_IN_LOCAL.test(local) || Buffer.byteLength(local) > MAX_LOCAL_BYTES) return undefined;
  const domain = trimmed.slice(at + 1).toLowerCase();
  const ascii = domainToASCII(domain);
  const unicode = domainToUnicode(ascii);
  // Invalid punycode stays as it is; DNS has no label over 63 characters.
  if (ascii.split(".").some((label) => label.length > MAX_LABEL_LENGTH) || /(^|\.)xn--/.test(unicode)) return undefined;
  if (ascii === "" || ascii.length > MAX_DOMAIN_LENGTH) return undefined;
  // Checked again where it was mapped to ASCII: that may turn a name into something else, e.g. a number into an IP address.
  if (ascii !== domain && !isEmail.default(`a@${ascii}`, SYNTAX)) return undefined;
  return `${local}@${unicode}`;
}

/** An address as a client sees it again: as it was written, trimmed and in lower case. */
export const spellingOf = (text: string): string => trimAddress(text).toLowerCase();

/** The columns of an address. */
export interface StoredAddress {
  /** The spelling to compare by. */
  email: string;
  /** The client's own spelling; null where it is the one to compare by. */
  emailSpelling: string | null;
}

/** @param text a valid address in any spelling */
export function storedAddress(text: string): StoredAddress {
  const email = lookupAddress(text);
  const spelling = spellingOf(text);
  return { email, emailSpelling: spelling === email ? null : spelling };
}

/** The spelling of a stored address that clients see. */
export const shownAddress = ({
  email,
  emailSpelling,
}: {
  email: string;
  emailSpelling?: string | null | undefined;
}): string => emailSpelling ?? email;

/** The spelling to look an address up by; a text that is no address matches no row. */
export const lookupAddress = (text: string): string => normaliseAddress(text) ?? spellingOf(text);

/** The domain of a normalised address, in Unicode. */
export const addressDomain = (address: string): string => address.slice(address.lastIndexOf("@") + 1);

/**
 * Returns the stored spelling of a domain name: in lower case and in Unicode.
 * @returns undefined for an invalid domain name
 */
export function normaliseDomain(text: string): string | undefined {
  const address = normaliseAddress(`a@${trimAddress(text)}`);
  return address === undefined ? undefined : addressDomain(address);
}
