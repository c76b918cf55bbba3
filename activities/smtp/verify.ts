import type { SmtpReason } from "../../domain/mail/outcome.ts";
import { SMTP_PORTS } from "../../domain/mail/smtp-guard.ts";
import { openSession, type SmtpAccount } from "./login.ts";
import { SmtpSession } from "./session.ts";

export { smtpLimits } from "./limits.ts";

export type AccountCheck =
  | { ok: true }
  | {
      ok: false;
      reason: SmtpReason;
      temporary: boolean;
      /** A sentence for the account's owner, with the server's reply where there is one */
      message: string;
    };

const SENTENCES: Partial<Record<SmtpReason, string>> = {
  connection_refused: "The server refuses the connection; check host and port.",
  connection_lost: "The server closed the connection; check the port and the kind of encryption.",
  connection_timeout: "The server did not answer in time; check host, port and the kind of encryption.",
  name_not_found: "The host name cannot be found.",
  tls_failed: "No secure connection could be made; check the kind of encryption and the server's certificate.",
  server_forbidden: `Mail does not go to this host and port. Use a host whose addresses are all on the public Internet, and one of the ports ${SMTP_PORTS.join(", ")}; the operator of this service can allow others by SMTP_ALLOWED_HOSTS.`,
  login_in_clear_text: "User name and password are sent over TLS only; use starttls or tls.",
  greeting_refused: "The server refused the session.",
  helo_refused:
    "The server refuses the name by which this service greets it; the operator of this service can set another by SMTP_HELO_NAME.",
  server_closing: "The server is closing its sessions; try again later.",
  login_refused: "The server refused the user name or the password.",
  access_revoked: "The mailbox's OAuth grant is no longer valid.",
  token_refused: "The token endpoint refuses the OAuth client.",
  token_unavailable: "The token endpoint gives no access token at present.",
};

/** Can this account send? @param signal cuts the check off; its result then says nothing about the account */
export async function verifyAccount(account: SmtpAccount, signal?: AbortSignal): Promise<AccountCheck> {
  const opened = await openSession(account, signal ?? new AbortController().signal);
  if (opened instanceof SmtpSession) {
    opened.quit();
    return { ok: true };
  }
  const { reason, temporary, response } = opened;
  const sentence = SENTENCES[reason] ?? "The server does not answer as an SMTP server does.";
  const reply = response === undefined ? "" : ` It said: ${response}`;
  return { ok: false, reason, temporary, message: sentence + reply };
}
