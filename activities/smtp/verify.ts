import type { Env } from "../../config/env.ts";
import type { SmtpLogin } from "../../domain/accounts/accounts.ts";
import type { SmtpReason } from "../../domain/mail/outcome.ts";
import { openSmtpGuard } from "../../domain/mail/smtp-guard.ts";
import { sentenceFor } from "../../domain/mail/smtp-sentences.ts";
import { smtpLimits } from "./limits.ts";
import { openSession, type SmtpAccount } from "./login.ts";
import { SmtpSession } from "./session.ts";

export type AccountCheck =
  | { ok: true }
  | {
      ok: false;
      reason: SmtpReason;
      temporary: boolean;
      /** A sentence for the account's owner, with the server's reply where there is one */
      message: string;
    };

/** Can this account send? @param signal cuts the check off; its result then says nothing about the account */
export async function verifyAccount(account: SmtpAccount, signal?: AbortSignal): Promise<AccountCheck> {
  const opened = await openSession(account, signal ?? new AbortController().signal);
  if (opened instanceof SmtpSession) {
    opened.quit();
    return { ok: true };
  }
  const { reason, temporary, response } = opened;
  const reply = response === undefined ? "" : ` It said: ${response}`;
  return { ok: false, reason, temporary, message: sentenceFor(reason) + reply };
}

/** Logs in as a worker would. @param signal as of `verifyAccount` */
export const verifyLogin = (
  env: Env,
  { accessToken, ...login }: SmtpLogin,
  signal?: AbortSignal,
): Promise<AccountCheck> =>
  verifyAccount(
    {
      ...login,
      accessToken: accessToken === undefined ? undefined : async () => accessToken,
      guard: openSmtpGuard(env),
      name: env.SMTP_HELO_NAME,
      limits: smtpLimits(env),
    },
    signal,
  );
