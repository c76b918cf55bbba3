import { isDeepStrictEqual } from "node:util";
import type { Env } from "../../config/env.ts";
import type { AccountProvider } from "../../db/entities/account.ts";
import { type DkimSigner, dkimSigner, type SignedField } from "../../domain/mail/dkim.ts";
import { prepareInThread } from "../../domain/mail/examination.ts";
import { returnPath, unsubscribeMailto, unsubscribeUrl } from "../../domain/mail/links.ts";
import {
  type ComposedMessage,
  composeMessage,
  type FilledMessage,
  type MessageContent,
} from "../../domain/mail/message.ts";
import { messageIdOf } from "../../domain/mail/message-id.ts";
import { newPlaceholder, type TrackedUrls } from "../../domain/mail/tracked-body.ts";
import { sendGridHeader } from "../../domain/reports/sendgrid.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { domainOf, openKey } from "../../domain/sending-domains/keys.ts";
import type { LaneContent } from "../../domain/sends/content.ts";
import type { OpenedDispatch } from "../../domain/sends/lanes.ts";
import type { StagedRecipient } from "../../domain/sends/staging.ts";
import { mailToken, trackedUrls } from "../../domain/tracking/links.ts";

type Lane = Pick<OpenedDispatch, "teamId" | "sendId" | "accountId">;
/** Makes the URLs of a send's pixel and links. */
type MakeUrls = () => TrackedUrls;

/** Characters of the bodies whose messages stay composed between slices. A message takes some bytes for each. */
const MAX_KEPT_CHARS = 4_000_000;

/**
 * The parts that all mails of a lane share, composed once per lane and process: a body of 1 MiB takes half a second of the
 * thread that all teams share, and 50 ms of the event loop.
 */
export class ComposedMessages {
  readonly #kept = new Map<string, { content: MessageContent; message: Promise<ComposedMessage> }>();

  /**
   * @param makeUrls of a send whose content says that it is tracked
   * @throws {TemplateError | UnsendableError} as `composeMessage`
   */
  compose({ teamId, sendId, accountId }: Lane, content: MessageContent, makeUrls?: MakeUrls): Promise<ComposedMessage> {
    const lane = `${sendId}/${accountId}`;
    const before = this.#kept.get(lane);
    // The sender's name may be the account's, which an operator may change during a send.
    const isSame = before !== undefined && isDeepStrictEqual(before.content, content);
    const entry = isSame ? before : { content, message: compose(teamId, content, makeUrls) };
    this.#kept.delete(lane);
    this.#kept.set(lane, entry);
    if (!isSame) {
      entry.message.catch(() => {
        if (this.#kept.get(lane) === entry) this.#kept.delete(lane);
      });
      this.#dropOldest();
    }
    return entry.message;
  }

  #dropOldest(): void {
    let chars = 0;
    for (const [lane, { content }] of [...this.#kept].reverse()) {
      chars += content.html.length;
      if (chars > MAX_KEPT_CHARS) this.#kept.delete(lane);
    }
  }
}

const compose = async (teamId: string, content: MessageContent, makeUrls?: MakeUrls): Promise<ComposedMessage> =>
  composeMessage(content, await prepareInThread(teamId, content), makeUrls?.());

/**
 * Fields that a provider replaces, so that a signature over them would break. Amazon SES: https://docs.aws.amazon.com/ses/
 * latest/dg/send-email-authentication-dkim-manual.html
 */
const REPLACED_FIELDS: Partial<Record<AccountProvider, readonly SignedField[]>> = {
  SMTP_AMAZON_SES: ["Message-ID", "Date"],
};

/** The signer of a lane's mails; undefined where no key signs for the sender's domain. */
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
  messages: ComposedMessages,
  lane: Lane & Pick<OpenedDispatch, "tracking">,
  laneContent: LaneContent,
): Promise<(recipient: StagedRecipient) => FilledMessage> {
  const { subject, body, fromEmail, fromName, listNames, provider } = laneContent;
  const { sendId, tracking } = lane;
  const { RETURN_PATH_DOMAIN: domain } = env;
  const content = { subject, html: body, fromEmail, fromName };
  const message = tracking
    ? await messages.compose(lane, { ...content, tracking: { ownUrl: env.PUBLIC_URL } }, () =>
        trackedUrls(vault, env.PUBLIC_URL, sendId, newPlaceholder()),
      )
    : await messages.compose(lane, content);
  const messageIdDomain = domainOf(fromEmail);
  const sign = signerOf(vault, laneContent);
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
      providerHeader: provider === "SMTP_SENDGRID" ? sendGridHeader(mail) : undefined,
    });
    return sign ? { ...filled, signature: sign(filled.message) } : filled;
  };
}
