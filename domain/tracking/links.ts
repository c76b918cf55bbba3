import { idOfSuffix, suffixOfId } from "../ids.ts";
import type { MailRef } from "../mail/links.ts";
import { isRedirectable, type TrackedUrls } from "../mail/tracked-body.ts";
import type { Vault } from "../secrets/crypto.ts";

/*
 * /o/{mail} is a pixel, /l/{mail}/{link} a link. {mail} names a row of the ledger; {link} is the address, signed with the
 * send: it is redirected without the database, and a mail costs one signature.
 */

/** Once per send. @param placeholder stands for the `mailToken` of each mail */
export function trackedUrls(vault: Vault, publicUrl: string, sendId: string, placeholder: string): TrackedUrls {
  const send = suffixOfId("send", sendId);
  return {
    placeholder,
    openUrl: `${publicUrl}/o/${send}.${placeholder}`,
    clickUrl: (url) => {
      const link = `${vault.sign("tracking", "link", send, url)}.${Buffer.from(url).toString("base64url")}`;
      return `${publicUrl}/l/${send}.${placeholder}/${link}`;
    },
  };
}

export function mailToken(vault: Vault, { sendId, seq }: MailRef): string {
  const row = seq.toString(36);
  return `${row}.${vault.sign("tracking", "mail", suffixOfId("send", sendId), row)}`;
}

/** Undefined for a URL that this service did not sign. */
export function readOpen(vault: Vault, mail: string): MailRef | undefined {
  const [send = "", row = "", signature = "", ...rest] = mail.split(".");
  if (rest.length > 0 || !vault.verify(signature, "tracking", "mail", send, row)) return undefined;
  return { sendId: idOfSuffix("send", send), seq: Number.parseInt(row, 36) };
}

/** Undefined unless this service signed both, for the same send. */
export function readClick(vault: Vault, mail: string, link: string): { mail: MailRef; url: string } | undefined {
  const ref = readOpen(vault, mail);
  const [signature = "", encoded = "", ...rest] = link.split(".");
  const url = Buffer.from(encoded, "base64url").toString("latin1");
  if (!ref || rest.length > 0 || !isRedirectable(url)) return undefined;
  return vault.verify(signature, "tracking", "link", suffixOfId("send", ref.sendId), url)
    ? { mail: ref, url }
    : undefined;
}
