import type { SmtpLimits } from "../../activities/smtp/limits.ts";
import { openSmtpGuard } from "../../domain/mail/smtp-guard.ts";

/** For connections to servers of a test's own, on any port. */
export const LOOPBACK_ONLY = openSmtpGuard({ SMTP_ALLOWED_HOSTS: ["127.0.0.1:*"], EGRESS_DENIED_NETWORKS: [] });

/** The same limit for each step of a session. */
export const within = (ms: number): SmtpLimits => ({
  ...{ connect: ms, greeting: ms, mail: ms, rcpt: ms, data: ms, block: ms, dot: ms },
});
