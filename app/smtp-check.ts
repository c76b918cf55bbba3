import { type AccountCheck, smtpLimits, verifyAccount } from "../activities/smtp/verify.ts";
import type { Env } from "../config/env.ts";
import type { SmtpLogin } from "../domain/accounts/accounts.ts";
import { openSmtpGuard } from "../domain/mail/smtp-guard.ts";

/** Logs in as a worker would. */
export const verifyLogin = (env: Env, { accessToken, ...login }: SmtpLogin): Promise<AccountCheck> =>
  verifyAccount({
    ...login,
    accessToken: accessToken === undefined ? undefined : async () => accessToken,
    guard: openSmtpGuard(env),
    name: env.SMTP_HELO_NAME,
    limits: smtpLimits(env),
  });
