import type { EntityManager } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import {
  claimInvites,
  claimLinks,
  type DueInvite,
  type DueLink,
  settleInvite,
  settleLink,
} from "../domain/access/member-mails.ts";
import { consoleUrl, LINK_MINUTES, signInUrl } from "../domain/access/sessions.ts";
import { plainName } from "../domain/audience/plain-name.ts";
import type { ActivityDeps } from "./deps.ts";
import { openTransport, PERMANENT, replyCode } from "./system-mail.ts";

const BATCH = 50;

type Deps = Pick<ActivityDeps, "env" | "orm" | "vault" | "log" | "stopping">;

interface DueMail {
  id: string;
  email: string;
}

interface MailKind<Due extends DueMail> {
  claim: (em: EntityManager, limit: number) => Promise<Due[]>;
  settle: (em: EntityManager, due: Due) => Promise<void>;
  compose: (due: Due) => { subject: string; text: string };
}

/** Mails all that are due. A crash repeats a mail; one that the server refuses for good is given up. */
async function sendDue<Due extends DueMail>(
  { env, orm, log, stopping }: Deps,
  { claim, settle, compose }: MailKind<Due>,
): Promise<void> {
  for (let claimed = BATCH; claimed === BATCH && !stopping.aborted; ) {
    const due = await transaction(orm.em, (em) => claim(em, BATCH));
    claimed = due.length;
    if (claimed === 0) return;
    const transport = openTransport(env);
    const headers = { "Auto-Submitted": "auto-generated" };
    const sendOne = async (mail: Due) => {
      try {
        await transport.sendMail({ from: env.SYSTEM_FROM, to: mail.email, headers, ...compose(mail) });
      } catch (error) {
        const code = replyCode(error);
        log.warn({ id: mail.id, code }, "mail to a member not accepted");
        if (code === undefined || code < PERMANENT) return;
      }
      await settle(orm.em.fork(), mail);
    };
    await Promise.all(due.map(sendOne)).finally(() => transport.close());
  }
}

/** Mails the links by which members sign in to the console. */
export const sendDueSignInLinks = (deps: Deps): Promise<void> =>
  sendDue<DueLink>(deps, {
    claim: claimLinks,
    settle: settleLink,
    compose: ({ id }) => ({
      subject: "Sign in to Mailkeel",
      text: [
        "Open this link in the browser in which you asked for it:",
        signInUrl(deps.vault, deps.env.PUBLIC_URL, id),
        `It works once, within ${LINK_MINUTES} minutes. If you did not ask for it, do nothing: it opens in no other browser.`,
      ].join("\n\n"),
    }),
  });

/** Mails those who were added to a team where they sign in. An ADMIN chose the address, so the name must not be a link. */
export const sendDueInvites = (deps: Deps): Promise<void> =>
  sendDue<DueInvite>(deps, {
    claim: claimInvites,
    settle: settleInvite,
    compose: ({ email, role, teamName }) => ({
      subject: "You are a member of a team on Mailkeel",
      text: [
        `You were added to the team "${plainName(teamName, "a sender")}" with the role ${role}.`,
        `Sign in with this address, ${email}: ask for a link at ${consoleUrl(deps.env.PUBLIC_URL)}`,
        "If you expected no such mail, do nothing.",
      ].join("\n\n"),
    }),
  });
