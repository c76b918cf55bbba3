/** Safe to log and to store. */
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
  /** Most likely the name in EHLO. */
  | "helo_refused"
  | "login_refused"
  /** By the mailbox's owner or its provider. */
  | "access_revoked"
  | "token_refused"
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

export interface ReplyDetails {
  code?: number | undefined;
  enhanced?: string | undefined;
  /** Without addresses, at most 200 characters. */
  response?: string | undefined;
}

/** No recipient is at fault, and the message was not accepted. */
export interface AccountFailure extends ReplyDetails {
  outcome: "account_failure";
  reason: SmtpReason;
  /** An outage or a 4xx, unlike a refused login. */
  temporary: boolean;
}

/** From the SMTP reply to the ledger's row. */
export type MailOutcome =
  | ({ outcome: "sent"; reason: "accepted" } & ReplyDetails)
  /** Not accepted; may be tried again later. */
  | ({
      outcome: "deferred";
      reason: SmtpReason;
      /** The connection broke before the dot: the message may go at once over another one. */
      retry: boolean;
    } & ReplyDetails)
  | ({
      outcome: "rejected";
      reason: SmtpReason | "unsendable" | "smtputf8_unsupported";
      suppress: boolean;
      /** About the sender or the content: many in a row pause the send. */
      policy: boolean;
    } & ReplyDetails)
  /** The message may have been accepted; there is no way to find out. */
  | ({ outcome: "unknown"; reason: "no_answer" } & ReplyDetails)
  | AccountFailure
  | { outcome: "not_attempted"; reason: "pool_stopped" };

export interface Mailed<Item> {
  item: Item;
  outcome: MailOutcome;
}

export const NOT_ATTEMPTED: MailOutcome = { outcome: "not_attempted", reason: "pool_stopped" };

/** The server has not answered the final dot. */
export const NO_ANSWER: MailOutcome = { outcome: "unknown", reason: "no_answer" };

export const UNSENDABLE: MailOutcome = { outcome: "rejected", reason: "unsendable", suppress: false, policy: true };

export const SMTPUTF8_UNSUPPORTED: MailOutcome = {
  outcome: "rejected",
  reason: "smtputf8_unsupported",
  suppress: false,
  policy: false,
};
