/** Why a mail has its outcome, as a code that is safe to log and to store. */
export type SmtpReason =
  | "accepted"
  | "no_answer"
  | "connection_refused"
  | "connection_lost"
  | "connection_timeout"
  | "name_not_found"
  | "tls_failed"
  | "protocol_error"
  | "server_forbidden"
  | "login_in_clear_text"
  | "greeting_refused"
  /** The server refuses EHLO, most likely the name in it. */
  | "helo_refused"
  | "login_refused"
  /** The mailbox's owner, or its provider, has withdrawn the OAuth grant. */
  | "access_revoked"
  /** The token endpoint refuses the account's OAuth client. */
  | "token_refused"
  /** The token endpoint gives no access token at present. */
  | "token_unavailable"
  | "sender_refused"
  | "server_closing"
  | "temporary_refusal"
  | "mailbox_unknown"
  | "mailbox_disabled"
  | "mailbox_full"
  | "recipient_refused"
  | "policy_refused"
  | "content_refused";

/** A server's reply, fit to be logged and shown. */
export interface ReplyDetails {
  code?: number | undefined;
  enhanced?: string | undefined;
  /** The reply without addresses, at most 200 characters */
  response?: string | undefined;
}

/** The account cannot mail: no recipient is at fault, and the message was not accepted. */
export interface AccountFailure extends ReplyDetails {
  outcome: "account_failure";
  reason: SmtpReason;
  /** It may pass by itself (an outage, a 4xx), unlike a refused login */
  temporary: boolean;
}

/** The outcome of one mail: the one vocabulary from the SMTP reply to the ledger's row. */
export type MailOutcome =
  /** The server took responsibility. */
  | ({ outcome: "sent"; reason: "accepted" } & ReplyDetails)
  /** Not accepted; may be tried again later. */
  | ({
      outcome: "deferred";
      reason: SmtpReason;
      /** The connection broke before the dot: the same message may go at once over another one */
      retry: boolean;
    } & ReplyDetails)
  /** Refused for good. */
  | ({
      outcome: "rejected";
      reason: SmtpReason | "unsendable" | "smtputf8_unsupported";
      /** A hard bounce: add the address to the team's do-not-mail list */
      suppress: boolean;
      /** The refusal was about the sender or the content; many in a row pause the send */
      policy: boolean;
    } & ReplyDetails)
  /** The message may have been accepted; there is no way to find out. */
  | ({ outcome: "unknown"; reason: "no_answer" } & ReplyDetails)
  | AccountFailure
  /** It was never begun: nothing has left. */
  | { outcome: "not_attempted"; reason: "pool_stopped" };

/** Something that was to be mailed, and its outcome. */
export interface Mailed<Item> {
  item: Item;
  outcome: MailOutcome;
}

export const NOT_ATTEMPTED: MailOutcome = { outcome: "not_attempted", reason: "pool_stopped" };

/** The server has not answered the final dot. */
export const NO_ANSWER: MailOutcome = { outcome: "unknown", reason: "no_answer" };

/** The message cannot be composed for this recipient. That is its content's fault. */
export const UNSENDABLE: MailOutcome = { outcome: "rejected", reason: "unsendable", suppress: false, policy: true };

/** The address is international and the server takes only ASCII ones. */
export const SMTPUTF8_UNSUPPORTED: MailOutcome = {
  outcome: "rejected",
  reason: "smtputf8_unsupported",
  suppress: false,
  policy: false,
};
