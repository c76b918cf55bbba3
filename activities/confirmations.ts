import { transaction } from "../db/transaction.ts";
import {
  claimConfirmations,
  type DueConfirmation,
  settleConfirmation,
  type Withheld,
} from "../domain/audience/confirmation-mails.ts";
import { plainName } from "../domain/audience/plain-name.ts";
import { confirmUrl } from "../domain/mail/links.ts";
import { escapeHtml } from "../domain/mail/template.ts";
import type { ActivityDeps } from "./deps.ts";
import { handOver, openTransport, type Transport } from "./system-mail.ts";

const BATCH = 50;

type Deps = Pick<ActivityDeps, "env" | "orm" | "vault" | "log" | "stopping">;

/**
 * Sends the confirmation mails that are due. Each is claimed first and settled after the server accepted it: a crash in
 * between repeats a mail ten minutes later and drops none.
 * @returns number of mails that the server accepted
 */
export async function sendDueConfirmations({ env, orm, vault, log, stopping }: Deps): Promise<number> {
  const limits = { perAddress: env.CONFIRMATIONS_PER_ADDRESS, perTeam: env.CONFIRMATIONS_PER_TEAM };
  let transport: Transport | undefined;
  let sent = 0;
  /** By team and reason: one line of the log each. */
  const held = new Map<string, Withheld & { mails: number }>();

  const sendOne = async (carrier: Transport, due: DueConfirmation) => {
    const { email: to, subscriberId, listId } = due;
    const mail = { to, ...compose(due, confirmUrl(vault, env.PUBLIC_URL, due)) };
    const outcome = await handOver({ env, log }, carrier, mail, { subscriberId, listId });
    if (outcome) await settleConfirmation(orm.em.fork(), due, outcome);
    if (outcome === "sent") sent++;
  };

  try {
    while (!stopping.aborted) {
      const { claimed, withheld } = await transaction(orm.em, (em) => claimConfirmations(em, BATCH, limits));
      for (const mail of withheld) {
        const key = `${mail.teamId}/${mail.reason}`;
        held.set(key, { ...mail, mails: (held.get(key)?.mails ?? 0) + 1 });
      }
      if (claimed.length + withheld.length === 0) break;
      if (claimed.length === 0) continue;
      transport ??= openTransport(env);
      const carrier = transport;
      await Promise.all(claimed.map((due) => sendOne(carrier, due)));
    }
  } finally {
    for (const mails of held.values()) log.warn(mails, "confirmation mails are withheld until the next UTC day");
    transport?.close();
  }
  return sent;
}

/** A client chose the address, so its names must reach neither the subject nor a link. */
function compose(due: DueConfirmation, url: string) {
  const teamName = plainName(due.teamName, "a sender");
  const listName = plainName(due.listName, "a mailing list");
  return {
    subject: "Please confirm your subscription",
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
  };
}
