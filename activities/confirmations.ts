import type { EntityManager } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import {
  claimConfirmations,
  type DueConfirmation,
  keepConfirmation,
  settleConfirmation,
  type Withheld,
} from "../domain/audience/confirmation-mails.ts";
import { plainAddress, plainName } from "../domain/audience/plain-name.ts";
import { wordsOf } from "../domain/languages/words.ts";
import { compileBlocks } from "../domain/mail/blocks/compile.ts";
import { logoBlocks } from "../domain/mail/blocks/logo.ts";
import type { Block } from "../domain/mail/blocks/schema.ts";
import { confirmUrl } from "../domain/mail/links.ts";
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
  const words = wordsOf(due.language).confirmation;
  const { subject, title, open, button, ignore } = words;
  const fromName = plainName(due.teamName, "");
  const asked = words.request(plainName(due.listName, words.unnamedList), fromName || words.unnamedTeam);
  const foot = plainAddress(due.postalAddress);
  const wordsFor = (text: string) => ({ content: [{ type: "text" as const, text }] });
  const paragraph = (text: string): Block => ({ type: "paragraph", ...wordsFor(text) });
  const content: Block[] = [
    ...(due.logoUrl ? logoBlocks({ ...due, teamName: fromName }) : fromName ? [paragraph(fromName)] : []),
    { type: "heading", attrs: { level: 2 }, ...wordsFor(title) },
    paragraph(asked),
    { type: "button", attrs: { label: button, href: url, align: "left" } },
    paragraph(ignore),
    ...(foot ? [{ type: "divider" } as const, paragraph(foot)] : []),
  ];
  return {
    fromName,
    subject,
    text: [asked, `${open}\n${url}`, ignore, ...(foot ? [foot] : [])].join("\n\n"),
    html: compileBlocks({ blocks: { type: "doc", content }, preheader: null, brand: due }),
  };
}
