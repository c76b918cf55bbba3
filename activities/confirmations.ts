import type { EntityManager } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import {
  claimConfirmations,
  type DueConfirmation,
  keepConfirmation,
  settleConfirmation,
  type Withheld,
} from "../domain/audience/confirmation-mails.ts";
import { plainName } from "../domain/audience/plain-name.ts";
import { wordsOf } from "../domain/languages/words.ts";
import { confirmUrl } from "../domain/mail/links.ts";
import { escapeHtml } from "../domain/mail/template.ts";
import { FONT_FAMILIES, textOn } from "../lib/mail-style.ts";
import type { ActivityDeps } from "./deps.ts";
import { type HandOverFailure, sendDue } from "./system-mail.ts";

type Deps = Pick<ActivityDeps, "env" | "orm" | "vault" | "log" | "stopping">;

/**
 * Sends the confirmation mails that are due. A crash between a mail and its settlement repeats the mail after its claim.
 * @returns number of mails that the server accepted
 */
export async function sendDueConfirmations(deps: Deps): Promise<number> {
  const { env, vault, log, stopping } = deps;
  const limits = { perAddress: env.CONFIRMATIONS_PER_ADDRESS, perTeam: env.CONFIRMATIONS_PER_TEAM };
  /** By team and reason: one line of the log each. */
  const held = new Map<string, Withheld & { mails: number }>();
  const claim = async (em: EntityManager, limit: number): Promise<DueConfirmation[]> => {
    for (;;) {
      const { claimed, withheld } = await transaction(em, (tx) => claimConfirmations(tx, limit, limits));
      for (const mail of withheld) {
        const key = `${mail.teamId}/${mail.reason}`;
        held.set(key, { ...mail, mails: (held.get(key)?.mails ?? 0) + 1 });
      }
      // Behind a batch that was withheld as a whole others may be due.
      if (claimed.length > 0 || withheld.length === 0 || stopping.aborted) return claimed;
    }
  };
  const keep = async (em: EntityManager, due: DueConfirmation, failure: HandOverFailure | undefined) => {
    if (due.isLate && failure?.isPermanent) await settleConfirmation(em, due, "given_up");
    // What a mailbox refuses for now is no failure of the relay.
    else if (!failure || failure.isPermanent || failure.about === "account") await keepConfirmation(em, due);
  };
  try {
    return await sendDue<DueConfirmation>(deps, {
      claim,
      settle: settleConfirmation,
      keep,
      groupOf: ({ teamId }) => teamId,
      aboutOf: ({ subscriberId, listId }) => ({ subscriberId, listId }),
      compose: (due) => ({ to: due.email, ...compose(due, confirmUrl(vault, env.PUBLIC_URL, due)) }),
    });
  } finally {
    for (const mails of held.values()) log.warn(mails, "confirmation mails are withheld until the next UTC day");
  }
}

/** A client chose the address, so the names in it must not be read as a link or an address, nor stand in the subject. */
function compose(due: DueConfirmation, url: string) {
  const { language, logoUrl, accentColor, font } = due;
  const { subject, request, open, button, ignore, unnamedTeam, unnamedList } = wordsOf(language).confirmation;
  const fromName = plainName(due.teamName, "");
  const asked = request(plainName(due.listName, unnamedList), fromName || unnamedTeam);
  const [fontStyle, textColor] = [`font:16px/24px ${FONT_FAMILIES[font]}`, textOn(accentColor)];
  const logo = logoUrl
    ? `<p><img src="${escapeHtml(logoUrl)}" alt="${escapeHtml(fromName)}" height="48" style="height:48px;border:0"></p>\n`
    : "";
  return {
    fromName,
    subject,
    text: [asked, `${open}\n${url}`, ignore].join("\n\n"),
    html: `<!doctype html>
<html lang="${language}"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width,initial-scale=1">
<meta name="color-scheme" content="light dark"><title>${subject}</title></head>
<body style="margin:0;padding:24px;${fontStyle}">
${logo}<p>${escapeHtml(asked)}</p>
<table role="presentation" cellpadding="0" cellspacing="0" border="0"><tr><td bgcolor="${escapeHtml(accentColor)}" style="padding:12px 24px;border-radius:6px">
<a href="${escapeHtml(url)}" style="${fontStyle};font-weight:bold;color:${textColor};text-decoration:none">${button}</a></td></tr></table>
<p>${ignore}</p>
</body></html>
`,
  };
}
