import type { Env } from "../../config/env.ts";

/** How long the steps of a session may take, in ms: the kinds of RFC 5321, 4.5.3.2, beside `connect`. */
export interface SmtpLimits {
  /** For the connection. So long, too, a slice waits for the reply to a dot. */
  connect: number;
  /** For the greeting, and for each reply up to the login. */
  greeting: number;
  mail: number;
  rcpt: number;
  data: number;
  block: number;
  dot: number;
}

export const smtpLimits = (env: Env): SmtpLimits => ({
  connect: env.SMTP_TIMEOUT_MS,
  greeting: env.SMTP_GREETING_TIMEOUT_MS,
  mail: env.SMTP_MAIL_TIMEOUT_MS,
  rcpt: env.SMTP_RCPT_TIMEOUT_MS,
  data: env.SMTP_DATA_TIMEOUT_MS,
  block: env.SMTP_BLOCK_TIMEOUT_MS,
  dot: env.SMTP_DOT_TIMEOUT_MS,
});

export const loginDeadlineMs = ({ connect, greeting }: SmtpLimits): number => 4 * connect + greeting;

/** Longest time from the staging of a row to the beginning of its mail. */
export const beginDeadlineMs = ({ connect }: SmtpLimits): number => 4 * connect;

/** Longest time from the beginning of a mail to its body: before it, the mail ahead of it may wait for its dot. */
export const bodyDeadlineMs = ({ connect, mail, rcpt, data }: SmtpLimits): number => connect + mail + rcpt + data;

/** Longest time from the staging of a row to its outcome. */
export const outcomeDeadlineMs = (limits: SmtpLimits): number =>
  beginDeadlineMs(limits) + bodyDeadlineMs(limits) + limits.block + limits.dot;
