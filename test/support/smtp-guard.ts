import { openSmtpGuard } from "../../domain/mail/smtp-guard.ts";

/** For connections to servers of a test's own, on any port. */
export const LOOPBACK_ONLY = openSmtpGuard({ SMTP_ALLOWED_HOSTS: ["127.0.0.1:*"], EGRESS_DENIED_NETWORKS: [] });
