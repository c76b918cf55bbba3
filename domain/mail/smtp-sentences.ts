import type { SmtpReason } from "./outcome.ts";
import { SMTP_PORTS } from "./smtp-guard.ts";

const SENTENCES: Partial<Record<SmtpReason, string>> = {
  connection_refused: "The server refuses the connection; check host and port.",
  connection_lost: "The server closed the connection; check the port and the kind of encryption.",
  connection_timeout: "The server did not answer in time; check host, port and the kind of encryption.",
  name_not_found: "The host name cannot be found.",
  tls_failed: "No secure connection could be made; check the kind of encryption and the server's certificate.",
  server_forbidden: `Mail does not go to this host and port. Use a host whose addresses are all on the public Internet, and one of the ports ${SMTP_PORTS.join(", ")}; the operator of this service can allow others by SMTP_ALLOWED_HOSTS.`,
  login_in_clear_text: "User name and password are only sent over TLS; use starttls or tls.",
  greeting_refused: "The server refused the session.",
  helo_refused:
    "The server refuses the name by which this service greets it; the operator of this service can set another by SMTP_HELO_NAME.",
  sender_refused: "The server does not accept email from the account's address.",
  server_closing: "The server is closing its sessions; try again later.",
  login_refused: "The server refused the user name or the password.",
  access_revoked: "The mailbox's OAuth grant is no longer valid.",
  token_refused: "The token endpoint refuses the OAuth client.",
  token_unavailable: "The token endpoint is not giving out access tokens at the moment.",
};

/** Why an account cannot be used, for its owner. @param reason `SmtpReason` */
export const sentenceFor = (reason: string): string =>
  SENTENCES[reason as SmtpReason] ?? "The server does not answer as an SMTP server does.";
