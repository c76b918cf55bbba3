import { domainToASCII } from "node:url";
import type { Env } from "../../config/env.ts";
import type { Vault } from "../../domain/crypto.ts";
import { unsubscribeUrl } from "../../domain/links.ts";
import { prepareInThread } from "../../domain/mail/examination.ts";
import { composeMessage, type FilledMessage, type MessageContent } from "../../domain/mail/message.ts";
import type { LaneContent } from "../../domain/sends/content.ts";
import type { OpenedDispatch } from "../../domain/sends/lanes.ts";
import type { StagedRecipient } from "../../domain/sends/staging.ts";

/** Composes the part that all mails of a send share, once. @returns a function that fills in a recipient's part */
export async function composeMails(
  { vault, env }: { vault: Vault; env: Env },
  { teamId, sendId }: Pick<OpenedDispatch, "teamId" | "sendId">,
  { subject, body, fromEmail, fromName, listNames }: LaneContent,
): Promise<(recipient: StagedRecipient) => FilledMessage> {
  const content: MessageContent = { subject, html: body, fromEmail, fromName };
  const message = composeMessage(content, await prepareInThread(teamId, content));
  const messageIdDomain = domainToASCII(fromEmail.slice(fromEmail.lastIndexOf("@") + 1));
  return ({ seq, email, firstName, lastName, listId }) =>
    message.fill({
      email,
      firstName,
      lastName,
      listName: listId === null ? undefined : listNames.get(listId),
      unsubscribeUrl: unsubscribeUrl(vault, env.PUBLIC_URL, { sendId, seq }),
      // Derived from the ledger's row: the same mail sent again is recognisable as the same.
      messageId: `${seq}.${sendId}@${messageIdDomain}`,
      date: new Date(),
    });
}
