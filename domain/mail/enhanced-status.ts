/**
 * The subject of a refusal. `unknown`: there is no mailbox; no other class suppresses an address. `disabled`, `full`: the
 * mailbox exists. `sender`: its domain, its server or its rights. `policy`: a rule of the recipient's side. `system`: a
 * server or the way.
 */
export type StatusClass = "unknown" | "disabled" | "full" | "sender" | "policy" | "content" | "system";

/**
 * Codes without their first digit, by IANA's registry (RFC 5248). The source is RFC 3463 unless another one stands beside a
 * code. `X.Y.*` is the class of a subject's codes that are not listed, such as a provider's own.
 */
const CLASSES: Readonly<Record<string, StatusClass>> = {
  "0.*": "system",

  "1.0": "unknown", // other address status: in practice, the recipient's
  "1.1": "unknown", // bad destination mailbox address
  "1.2": "unknown", // bad destination system address
  "1.3": "unknown", // bad destination mailbox address syntax
  "1.4": "unknown", // destination mailbox address ambiguous
  "1.6": "unknown", // destination mailbox has moved, no forwarding address
  "1.7": "sender", // bad sender's mailbox address syntax; given to RCPT by servers that delay their refusals
  "1.8": "sender", // bad sender's system address; likewise
  "1.10": "unknown", // recipient address has null MX (RFC 7505)
  "1.*": "system", // 1.5 (a valid address), 1.9 (RFC 3886); Exchange Online gives 5.1.20 and 5.1.90 to senders

  "2.2": "full", // mailbox full
  "2.3": "content", // message length exceeds administrative limit
  "2.4": "system", // mailing list expansion problem
  "2.*": "disabled", // 2.0, 2.1: it may be enabled again

  "3.4": "content", // message too big for system
  "3.*": "system", // 3.0, 3.1 (mail system full), 3.2, 3.3, 3.5; 3.6 (RFC 6710)

  "4.*": "system", // 4.0 to 4.7

  "5.*": "system", // 5.0 to 5.5; 5.6 (RFC 4954)

  "6.7": "system", // non-ASCII addresses not permitted for that sender or recipient (RFC 6531)
  "6.8": "system", // UTF-8 string reply is required, but not permitted by the SMTP client (RFC 6531)
  "6.*": "content", // 6.0 to 6.5; 6.6 (RFC 4468), 6.9 (RFC 6531)

  "7.8": "sender", // authentication credentials invalid (RFC 4954)
  "7.9": "sender", // authentication mechanism is too weak (RFC 4954)
  "7.11": "sender", // encryption required for requested authentication mechanism (RFC 4954)
  "7.12": "sender", // a password transition is needed (RFC 4954)
  "7.13": "sender", // user account disabled: the one that has just logged in (RFC 5248)
  "7.14": "sender", // trust relationship required (RFC 5248)
  "7.27": "sender", // sender address has null MX (RFC 7505)
  "7.*": "policy",
};

/** @param enhanced such as "5.1.1"; its first digit is not looked at @returns undefined for no such code or subject */
export function classOfStatus(enhanced: string): StatusClass | undefined {
  const [, subject = "", detail = ""] = /^[245]\.(\d{1,3})\.(\d{1,3})$/.exec(enhanced) ?? [];
  return CLASSES[`${subject}.${detail}`] ?? CLASSES[`${subject}.*`];
}

/** RFC 5321, 4.2.3; RFC 7504 for 556. */
const REPLY_CLASSES: ReadonlyMap<number, StatusClass> = new Map<number, StatusClass>([
  [550, "unknown"],
  [551, "unknown"],
  [552, "full"],
  [553, "unknown"],
  [554, "policy"], // relays answer it to senders they refuse, for every recipient
  [556, "unknown"], // the domain does not accept mail
]);

/**
 * The class of a refused recipient, by the enhanced code or, without one, by the reply code. @returns undefined where none
 * has one
 */
export function classOfRefusal(code: number | undefined, enhanced: string | undefined): StatusClass | undefined {
  if (enhanced !== undefined && enhanced !== "") return classOfStatus(enhanced);
  return code === undefined ? undefined : REPLY_CLASSES.get(code);
}
