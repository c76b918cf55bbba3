import type { Env } from "../../config/env.ts";
import type { AccountProvider } from "../../db/entities/account.ts";
import { type DkimSigner, dkimSigner, type SignedField } from "../../domain/mail/dkim.ts";
import { prepareInThread } from "../../domain/mail/examination.ts";
import { returnPath, unsubscribeMailto, unsubscribeUrl } from "../../domain/mail/links.ts";
import { composeMessage, type FilledMessage, type MessageContent } from "../../domain/mail/message.ts";
import { messageIdOf } from "../../domain/mail/message-id.ts";
import { newPlaceholder } from "../../domain/mail/tracked-body.ts";
import { providerHeaderOf } from "../../domain/reports/providers.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { domainOf, openKey } from "../../domain/sending-domains/keys.ts";
import type { LaneContent } from "../../domain/sends/ledger/content.ts";
import type { OpenedDispatch } from "../../domain/sends/ledger/lanes.ts";
import type { StagedRecipient } from "../../domain/sends/ledger/staging.ts";
import { mailToken, trackedUrls } from "../../domain/tracking/links.ts";

/**
 * A signature over fields that a provider replaces would break. Amazon SES, by which Resend sends:
 * https://docs.aws.amazon.com/ses/latest/dg/send-email-authentication-dkim-manual.html
 */
const REPLACED_FIELDS: Partial<Record<AccountProvider, readonly SignedField[]>> = {
  SMTP_AMAZON_SES: ["Message-ID", "Date"],
  SMTP_RESEND: ["Message-ID", "Date"],
};

function signerOf(vault: Vault, { dkimKeys, provider }: LaneContent): DkimSigner | undefined {
  if (dkimKeys.length === 0) return undefined;
  const sign = dkimSigner(
    dkimKeys.map((key) => openKey(vault, key)),
    REPLACED_FIELDS[provider],
  );
  return (message) => {
    const signature = sign(message);
    // Not awaited when the server refuses the recipient: its rejection must not count as unhandled.
    signature.catch(() => {});
    return signature;
  };
}

/** @returns a function that fills in a recipient's part of a lane's mails */
export async function composeMails(
  { vault, env }: { vault: Vault; env: Env },
  lane: Pick<OpenedDispatch, "teamId" | "sendId" | "tracking">,
  laneContent: LaneContent,
): Promise<(recipient: StagedRecipient) => FilledMessage> {
  const { subject, body, fromEmail, fromName, listNames, provider } = laneContent;
  const { teamId, sendId, tracking } = lane;
  const { RETURN_PATH_DOMAIN: domain } = env;
  const tracked = tracking ? { tracking: { ownUrl: env.PUBLIC_URL } } : {};
  const content: MessageContent = { subject, html: body, fromEmail, fromName, ...tracked };
  const urls = tracking ? trackedUrls(vault, env.PUBLIC_URL, sendId, newPlaceholder()) : undefined;
  const message = composeMessage(content, await prepareInThread(teamId, content), urls);
  const messageIdDomain = domainOf(fromEmail);
  const sign = signerOf(vault, laneContent);
  const providerHeader = providerHeaderOf(provider);
  return ({ seq, email, firstName, lastName, listId, fields }) => {
    const mail = { sendId, seq };
    const filled = message.fill({
      email,
      firstName,
      lastName,
      listName: listId === null ? undefined : listNames.get(listId),
      fields: fields ?? undefined,
      unsubscribeUrl: unsubscribeUrl(vault, env.PUBLIC_URL, mail),
      unsubscribeMailto: domain === undefined ? undefined : unsubscribeMailto(vault, domain, mail),
      envelopeFrom: domain === undefined ? undefined : returnPath(vault, domain, mail),
      mailToken: tracking ? mailToken(vault, mail) : undefined,
      messageId: messageIdOf(mail, messageIdDomain),
      date: new Date(),
      providerHeader: providerHeader?.(mail),
    });
    return sign ? { ...filled, signature: sign(filled.message) } : filled;
  };
}
