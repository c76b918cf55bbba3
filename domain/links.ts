import { equalConstantTime, type Vault } from "./crypto.ts";
import { ID_PREFIX, type IdKind } from "./ids.ts";

/** Characters of the signature that a link carries: 132 bits, short enough for a line of text. */
const SIGNATURE_LENGTH = 22;

/** Names one mail: a row of the ledger. */
export interface MailRef {
  sendId: string;
  seq: number;
}

/** Names one subscription. */
export interface SubscriptionRef {
  listId: string;
  subscriberId: string;
}

// An id without its prefix: 26 characters of base32.
const bare = (kind: IdKind, id: string): string => id.slice(ID_PREFIX[kind].length + 1);
const full = (kind: IdKind, suffix: string): string => `${ID_PREFIX[kind]}_${suffix}`;

const sign = (vault: Vault, text: string): string => vault.sign("link", text).slice(0, SIGNATURE_LENGTH);

const unsubscribePath = (send: string, seq: string): string => `u/${send}.${seq}`;

/** Signed over the address too, so that a link sent to an old address does not confirm a new one. */
const confirmationText = (list: string, subscriber: string, email: string): string =>
  `c/${list}.${subscriber}/${email}`;

const trimSlash = (url: string): string => (url.endsWith("/") ? url.slice(0, -1) : url);

/**
 * The unsubscribe link of one mail. It holds no address and costs one HMAC: it is made for every mail.
 * @param publicUrl base of the public pages
 */
export function unsubscribeUrl(vault: Vault, publicUrl: string, { sendId, seq }: MailRef): string {
  const path = unsubscribePath(bare("send", sendId), seq.toString(36));
  return `${trimSlash(publicUrl)}/${path}.${sign(vault, path)}`;
}

/**
 * The confirmation link of a double opt-in.
 * @param email the address that the mail goes to
 */
export function confirmUrl(
  vault: Vault,
  publicUrl: string,
  { listId, subscriberId, email }: SubscriptionRef & { email: string },
): string {
  const list = bare("list", listId);
  const subscriber = bare("subscriber", subscriberId);
  const signature = sign(vault, confirmationText(list, subscriber, email));
  return `${trimSlash(publicUrl)}/c/${list}.${subscriber}.${signature}`;
}

/** Which mail an unsubscribe token is from; undefined when it is none of ours. */
export function readUnsubscribeToken(vault: Vault, token: string): MailRef | undefined {
  const [send = "", seq = "", signature = "", ...rest] = token.split(".");
  if (rest.length > 0 || !equalConstantTime(signature, sign(vault, unsubscribePath(send, seq)))) return undefined;
  return { sendId: full("send", send), seq: Number.parseInt(seq, 36) };
}

/** A confirmation token taken apart. It is worth nothing until `verify` was given the subscriber's address. */
export interface ConfirmationToken extends SubscriptionRef {
  /** Whether the link was made for this address. */
  verify(email: string): boolean;
}

/** Takes a confirmation token apart; undefined when it does not have the form of one. */
export function readConfirmationToken(vault: Vault, token: string): ConfirmationToken | undefined {
  const [list = "", subscriber = "", signature = "", ...rest] = token.split(".");
  if (rest.length > 0 || !list || !subscriber) return undefined;
  return {
    listId: full("list", list),
    subscriberId: full("subscriber", subscriber),
    verify: (email) => equalConstantTime(signature, sign(vault, confirmationText(list, subscriber, email))),
  };
}
