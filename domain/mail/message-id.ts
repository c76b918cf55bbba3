import { ID_PREFIX } from "../ids.ts";
import type { MailRef } from "./links.ts";

/** As the Message-ID, events and providers' reports show it. */
export const mailId = ({ sendId, seq }: MailRef): string => `${seq}.${sendId}`;

/** The same mail sent again is recognisable as the same. @param domain of the sender, in ASCII */
export const messageIdOf = (mail: MailRef, domain: string): string => `${mailId(mail)}@${domain}`;

const MAX_SEQ = 2_147_483_647;
const MAIL_ID = new RegExp(`^<?(\\d{1,10})\\.(${ID_PREFIX.send}_[0-9a-z]{26})(?:@[^\\s<>]+>?)?$`);

/** Reads a Message-ID, or the id alone; undefined for one that this service has not made. */
export function readMailId(text: string): MailRef | undefined {
  const [, seq, sendId] = MAIL_ID.exec(text.trim()) ?? [];
  if (sendId === undefined || Number(seq) > MAX_SEQ) return undefined;
  return { sendId, seq: Number(seq) };
}
