import { ID_PREFIX } from "../ids.ts";
import type { MailRef } from "./links.ts";

/** The id of a mail as its Message-ID, its events and its provider's reports show it: derived from its row in the ledger. */
export const mailId = ({ sendId, seq }: MailRef): string => `${seq}.${sendId}`;

/**
 * The Message-ID of a mail, without angle brackets: the same mail sent again is recognisable as the same.
 * @param domain of the sender, in ASCII
 */
export const messageIdOf = (mail: MailRef, domain: string): string => `${mailId(mail)}@${domain}`;

/** Largest `seq` that a row can have. */
const MAX_SEQ = 2_147_483_647;
const MAIL_ID = new RegExp(`^<?(\\d{1,10})\\.(${ID_PREFIX.send}_[0-9a-z]{26})(?:@[^\\s<>]+>?)?$`);

/**
 * The mail that a text names: a Message-ID with or without angle brackets, or the id alone.
 * @returns undefined for a text that this service has not made
 */
export function readMailId(text: string): MailRef | undefined {
  const [, seq, sendId] = MAIL_ID.exec(text.trim()) ?? [];
  if (sendId === undefined || Number(seq) > MAX_SEQ) return undefined;
  return { sendId, seq: Number(seq) };
}
