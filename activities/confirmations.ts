import { transaction } from "../db/transaction.ts";
import { claimConfirmations, type DueConfirmation, settleConfirmation } from "../domain/audience/confirmations.ts";
import { confirmUrl } from "../domain/links.ts";
import { escapeHtml } from "../domain/mail/template.ts";
import type { ActivityDeps } from "./deps.ts";
import { openTransport, PERMANENT, replyCode, type Transport } from "./system-mail.ts";

const BATCH = 50;

type Deps = Pick<ActivityDeps, "env" | "orm" | "vault" | "log" | "stopping">;

/**
 * Sends the confirmation mails of double opt-ins that are due, over SYSTEM_SMTP_URL. Each is claimed first and settled
 * after the server accepted it: a crash in between repeats a mail ten minutes later and drops none. A mail that the
 * server refuses for good is not repeated; after any other failure it is, when the claim ends.
 * @returns number of mails that the server accepted
 */
export async function sendDueConfirmations({ env, orm, vault, log, stopping }: Deps): Promise<number> {
  const { PUBLIC_URL: publicUrl, SYSTEM_SMTP_URL, SYSTEM_FROM, SMTP_TIMEOUT_MS } = env;
  let transport: Transport | undefined;
  let sent = 0;

  const sendOne = async (carrier: Transport, due: DueConfirmation) => {
    try {
      await carrier.sendMail({ from: SYSTEM_FROM, to: due.email, ...compose(due, confirmUrl(vault, publicUrl, due)) });
    } catch (error) {
      const code = replyCode(error);
      log.warn({ subscriberId: due.subscriberId, listId: due.listId, code }, "confirmation mail not accepted");
      if (code !== undefined && code >= PERMANENT) await settleConfirmation(orm.em.fork(), due, "refused");
      return;
    }
    await settleConfirmation(orm.em.fork(), due, "sent");
    sent++;
  };

  try {
    while (!stopping.aborted) {
      const batch = await transaction(orm.em, (em) => claimConfirmations(em, BATCH));
      if (batch.length === 0) break;
      transport ??= openTransport(SYSTEM_SMTP_URL, SMTP_TIMEOUT_MS);
      const carrier = transport;
      await Promise.all(batch.map((due) => sendOne(carrier, due)));
    }
  } finally {
    transport?.close();
  }
  return sent;
}

function compose({ listName, teamName }: DueConfirmation, url: string) {
  return {
    subject: `Please confirm: ${listName}`,
    text: [
      `Somebody, most likely you, asked ${teamName} to put this address on "${listName}".`,
      `To confirm, open this page:\n${url}`,
      "If it was not you, do nothing: without your confirmation you get no mail.",
    ].join("\n\n"),
    html: [
      `<p>Somebody, most likely you, asked ${escapeHtml(teamName)} to put this address on <b>${escapeHtml(listName)}</b>.</p>`,
      `<p><a href="${escapeHtml(url)}">Confirm the subscription</a></p>`,
      "<p>If it was not you, do nothing: without your confirmation you get no mail.</p>",
    ].join("\n"),
    headers: { "Auto-Submitted": "auto-generated" },
  };
}
