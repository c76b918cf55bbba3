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
import { sendDue } from "./system-mail.ts";

type Deps = Pick<ActivityDeps, "env" | "orm" | "vault" | "log" | "stopping">;

const aboutOf = ({ id }: { id: string }) => ({ id });

/** Mails the links by which members sign in to the console. */
export const sendDueSignInLinks = (deps: Deps): Promise<number> =>
  sendDue<DueLink>(deps, {
    claim: claimLinks,
    settle: settleLink,
    groupOf: ({ id }) => id,
    aboutOf,
    compose: ({ id, email: to }) => ({
      to,
      subject: "Sign in to Mailkeel",
      text: [
        "Open this link in the browser where you requested it:",
        signInUrl(deps.vault, deps.env.PUBLIC_URL, id),
        `It works once, within ${LINK_MINUTES} minutes. If you did not request it, ignore this email: the link works in no other browser.`,
      ].join("\n\n"),
    }),
  });

/** Mails those who were added to a team where they sign in. An ADMIN chose the address, so the name must not be a link. */
export const sendDueInvites = (deps: Deps): Promise<number> =>
  sendDue<DueInvite>(deps, {
    claim: claimInvites,
    settle: settleInvite,
    groupOf: ({ teamId }) => teamId,
    aboutOf,
    compose: ({ email, role, teamName }) => ({
      to: email,
      subject: "You have been added to a team on Mailkeel",
      text: [
        `You were added to the team "${plainName(teamName, "a sender")}" as ${role === "VIEWER" ? "a" : "an"} ${role.toLowerCase()}.`,
        `Sign in with this address, ${email}: ${consoleUrl(deps.env.PUBLIC_URL)}`,
        "If you did not expect this email, you can ignore it.",
      ].join("\n\n"),
    }),
  });
