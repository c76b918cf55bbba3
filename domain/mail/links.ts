import { idOfSuffix, suffixOfId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";

/** Identifies one mail by its row in the ledger. */
export interface MailRef {
  sendId: string;
  seq: number;
}

/** Identifies one subscription. */
export interface SubscriptionRef {
  listId: string;
  subscriberId: string;
}

const unsubscribePath = (send: string, seq: string): string => `u/${send}.${seq}`;

/** The mail that a confirmation link is in. */
export interface ConfirmationMailRef {
  email: string;
  /** The sign-up after an opt-out that it belongs to, see `signUpMark`; none for a subscriber who has not opted out. */
  signUp?: string | null;
}

/**
 * The signed text of a confirmation link. It contains the address and the sign-up, so that a link sent to an old address does
 * not confirm a new one, and a link from before an opt-out does not undo it.
 */
const confirmationText = (list: string, subscriber: string, { email, signUp }: ConfirmationMailRef): string =>
  `c/${list}.${subscriber}/${email}${signUp ? `/${signUp}` : ""}`;

/** A base URL without the slash at its end. */
export const trimSlash = (url: string): string => (url.endsWith("/") ? url.slice(0, -1) : url);

/**
 * Makes the unsubscribe link of one mail. It holds no address and costs one HMAC, because every mail needs one.
 * @param publicUrl base of the public pages
 */
export function unsubscribeUrl(vault: Vault, publicUrl: string, { sendId, seq }: MailRef): string {
  const path = unsubscribePath(suffixOfId("send", sendId), seq.toString(36));
  return `${trimSlash(publicUrl)}/${path}.${vault.sign("link", path)}`;
}

/**
 * Makes the confirmation link of a double opt-in. Its first signature is that of the mail, whose facts only the database
 * knows; the second one is verified without it.
 */
export function confirmUrl(
  vault: Vault,
  publicUrl: string,
  { listId, subscriberId, ...mail }: SubscriptionRef & ConfirmationMailRef,
): string {
  const list = suffixOfId("list", listId);
  const subscriber = suffixOfId("subscriber", subscriberId);
  const path = `c/${list}.${subscriber}.${vault.sign("link", confirmationText(list, subscriber, mail))}`;
  return `${trimSlash(publicUrl)}/${path}.${vault.sign("link", path)}`;
}

/** Reads the mail that an unsubscribe token belongs to; undefined for a token that this service did not sign. */
export function readUnsubscribeToken(vault: Vault, token: string): MailRef | undefined {
  const [send = "", seq = "", signature = "", ...rest] = token.split(".");
  if (rest.length > 0 || !vault.verify(signature, "link", unsubscribePath(send, seq))) return undefined;
  return { sendId: idOfSuffix("send", send), seq: Number.parseInt(seq, 36) };
}

/**
 * The kinds of addresses of a mail: `b` receives the reports about it, `u` receives the unsubscribe request of its recipient.
 */
type AddressKind = "b" | "u";

const addressText = (kind: AddressKind, send: string, seq: string): string => `${kind}-${send}-${seq}`;

/** At most 60 characters before the `@`, all in lower case. It costs one HMAC: every mail needs an address of each kind. */
function mailAddress(vault: Vault, kind: AddressKind, domain: string, { sendId, seq }: MailRef): string {
  const text = addressText(kind, suffixOfId("send", sendId), seq.toString(36));
  return `${text}-${vault.sign("return-path", text)}@${domain}`;
}

function readMailAddress(vault: Vault, kind: AddressKind, localPart: string): MailRef | undefined {
  const [, prefix, send = "", seq = "", signature = ""] =
    /^([bu])-([0-9a-z]{26})-([0-9a-z]{1,6})-([0-9a-f]{24})$/.exec(localPart.toLowerCase()) ?? [];
  if (prefix !== kind || !vault.verify(signature, "return-path", addressText(kind, send, seq))) return undefined;
  return { sendId: idOfSuffix("send", send), seq: Number.parseInt(seq, 36) };
}

/** Makes the envelope sender of one mail, to which reports about it come. @param domain RETURN_PATH_DOMAIN */
export const returnPath = (vault: Vault, domain: string, mail: MailRef): string =>
  mailAddress(vault, "b", domain, mail);

/**
 * Reads the mail that the local part of a return path belongs to, in any case; undefined for one that this service did not
 * sign.
 */
export const readReturnPath = (vault: Vault, localPart: string): MailRef | undefined =>
  readMailAddress(vault, "b", localPart);

/** The subject that mail programs take from the header for a mail that unsubscribes. */
export const UNSUBSCRIBE_SUBJECT = "unsubscribe";

/** Makes the address by which the recipient of one mail unsubscribes, as `returnPath` does. */
export const unsubscribeAddress = (vault: Vault, domain: string, mail: MailRef): string =>
  mailAddress(vault, "u", domain, mail);

/** Makes the `mailto:` URL of a mail that unsubscribes, see `unsubscribeAddress`. */
export const unsubscribeMailto = (vault: Vault, domain: string, mail: MailRef): string =>
  `mailto:${unsubscribeAddress(vault, domain, mail)}?subject=${UNSUBSCRIBE_SUBJECT}`;

/** Reads the mail that the local part of an unsubscribe address belongs to, as `readReturnPath` does. */
export const readUnsubscribeAddress = (vault: Vault, localPart: string): MailRef | undefined =>
  readMailAddress(vault, "u", localPart);

const MAIL_ADDRESS = /(?<![\w.+-])([bu]-[0-9a-z]{26}-[0-9a-z]{1,6}-[0-9a-f]{24})@/gi;

/** The local parts of the first return paths and unsubscribe addresses in a text, unverified. */
export const mailAddressesIn = (text: string, most: number): string[] =>
  [...new Set([...text.matchAll(MAIL_ADDRESS)].map(([, localPart = ""]) => localPart))].slice(0, most);

const UNSUBSCRIBE_TOKEN = /\/u\/([0-9a-z]{26}\.[0-9a-z]{1,7}\.[\w-]{22})(?![\w-])/g;

/** The first unsubscribe tokens in a text, unverified. */
export const unsubscribeTokensIn = (text: string, most: number): string[] =>
  [...new Set([...text.matchAll(UNSUBSCRIBE_TOKEN)].map(([, token = ""]) => token))].slice(0, most);

/** The parts of a confirmation token that this service has signed. */
export interface ConfirmationToken extends SubscriptionRef {
  /** Whether the link was made for this mail. */
  verify(mail: ConfirmationMailRef): boolean;
}

/** Reads the subscription that a confirmation token belongs to; undefined for a token that this service did not sign. */
export function readConfirmationToken(vault: Vault, token: string): ConfirmationToken | undefined {
  const [list = "", subscriber = "", ofMail = "", signature = "", ...rest] = token.split(".");
  const path = `c/${list}.${subscriber}.${ofMail}`;
  if (rest.length > 0 || !vault.verify(signature, "link", path)) return undefined;
  return {
    listId: idOfSuffix("list", list),
    subscriberId: idOfSuffix("subscriber", subscriber),
    verify: (mail) => vault.verify(ofMail, "link", confirmationText(list, subscriber, mail)),
  };
}
