import { idOfSuffix, suffixOfId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";

/** A row of the ledger. */
export interface MailRef {
  sendId: string;
  seq: number;
}

export interface SubscriptionRef {
  listId: string;
  subscriberId: string;
}

/** `u`: leads to the page of its unsubscribe. `t`: to that of the consent to be tracked. `v`: to the mail itself. */
export type MailPage = "u" | "t" | "v";

const mailPath = (page: MailPage, send: string, seq: string): string => `${page}/${send}.${seq}`;

export interface ConfirmationMailRef {
  email: string;
  /** The sign-up after an opt-out that it belongs to, see `signUpMark`; none for a subscriber who has not opted out. */
  signUp?: string | null;
}

/** So that a link sent to an old address does not confirm a new one, and one from before an opt-out does not undo it. */
const confirmationText = (list: string, subscriber: string, { email, signUp }: ConfirmationMailRef): string =>
  `c/${list}.${subscriber}/${email}${signUp ? `/${signUp}` : ""}`;

/** A link of one mail. It holds no address and costs one HMAC, because every mail needs one. */
const mailUrl =
  (page: MailPage) =>
  (vault: Vault, publicUrl: string, { sendId, seq }: MailRef): string => {
    const path = mailPath(page, suffixOfId("send", sendId), seq.toString(36));
    return `${publicUrl}/${path}.${vault.sign("link", path)}`;
  };

export const unsubscribeUrl = mailUrl("u");
export const trackingUrl = mailUrl("t");
export const webUrl = mailUrl("v");

/**
 * The confirmation link of a double opt-in. Only the database knows the facts of its first signature; the second one is
 * verified without it.
 */
export function confirmUrl(
  vault: Vault,
  publicUrl: string,
  { listId, subscriberId, ...mail }: SubscriptionRef & ConfirmationMailRef,
): string {
  const list = suffixOfId("list", listId);
  const subscriber = suffixOfId("subscriber", subscriberId);
  const path = `c/${list}.${subscriber}.${vault.sign("link", confirmationText(list, subscriber, mail))}`;
  return `${publicUrl}/${path}.${vault.sign("link", path)}`;
}

/** Undefined for a token that this service did not sign. */
export function readMailToken(vault: Vault, page: MailPage, token: string): MailRef | undefined {
  const [send = "", seq = "", signature = "", ...rest] = token.split(".");
  if (rest.length > 0 || !vault.verify(signature, "link", mailPath(page, send, seq))) return undefined;
  return { sendId: idOfSuffix("send", send), seq: Number.parseInt(seq, 36) };
}

/** At most 60 characters before the `@`, all in lower case, for one HMAC: every mail needs an address of each kind. */
function mailAddress(vault: Vault, letter: "b" | "u", domain: string, { sendId, seq }: MailRef): string {
  const text = `${letter}-${suffixOfId("send", sendId)}-${seq.toString(36)}`;
  return `${text}-${vault.sign("return-path", text)}@${domain}`;
}

/** The envelope sender of one mail, which receives the reports about it. @param domain RETURN_PATH_DOMAIN */
export const returnPath = (vault: Vault, domain: string, mail: MailRef): string =>
  mailAddress(vault, "b", domain, mail);

/** Mail programs take it from the header. */
export const UNSUBSCRIBE_SUBJECT = "unsubscribe";

export const unsubscribeAddress = (vault: Vault, domain: string, mail: MailRef): string =>
  mailAddress(vault, "u", domain, mail);

export const unsubscribeMailto = (vault: Vault, domain: string, mail: MailRef): string =>
  `mailto:${unsubscribeAddress(vault, domain, mail)}?subject=${UNSUBSCRIBE_SUBJECT}`;

export interface MailAddress {
  /** A return path, or the address of an unsubscribe request. */
  use: "report" | "unsubscribe";
  ref: MailRef;
}

/** In any case; undefined for a local part that this service did not sign. */
export function readMailAddress(vault: Vault, localPart: string): MailAddress | undefined {
  const [, text = "", letter, send = "", seq = "", signature = ""] =
    /^(([bu])-([0-9a-z]{26})-([0-9a-z]{1,6}))-([0-9a-f]{24})$/.exec(localPart.toLowerCase()) ?? [];
  if (!vault.verify(signature, "return-path", text)) return undefined;
  const ref = { sendId: idOfSuffix("send", send), seq: Number.parseInt(seq, 36) };
  return { use: letter === "b" ? "report" : "unsubscribe", ref };
}

const MAIL_ADDRESS = /(?<![\w.+-])([bu]-[0-9a-z]{26}-[0-9a-z]{1,6}-[0-9a-f]{24})@/gi;

/** The local parts of the first addresses of mails in a text, unverified. */
export const mailAddressesIn = (text: string, most: number): string[] =>
  [...new Set([...text.matchAll(MAIL_ADDRESS)].map(([, localPart = ""]) => localPart))].slice(0, most);

const UNSUBSCRIBE_TOKEN = /\/u\/([0-9a-z]{26}\.[0-9a-z]{1,7}\.[\w-]{22})(?![\w-])/g;

/** Unverified. */
export const unsubscribeTokensIn = (text: string, most: number): string[] =>
  [...new Set([...text.matchAll(UNSUBSCRIBE_TOKEN)].map(([, token = ""]) => token))].slice(0, most);

export interface ConfirmationToken extends SubscriptionRef {
  verify(mail: ConfirmationMailRef): boolean;
}

/** Undefined for a token that this service did not sign. */
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
