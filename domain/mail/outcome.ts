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

/** A refusal whose fault may yet prove to be the account's, see `domain/sends/ledger/refusals.ts`. */
export interface Refusal {
  /** Equal for refusals that say the same of different recipients. */
  key: string;
  /** It is known to be about the sender, its login, its limit or its rights. */
  isAccounts: boolean;
  /** By what the reply says that the mailbox does not exist. */
  namesMailbox?: "code" | "words" | undefined;
  /** The mailbox does not exist, should the account have mail accepted afterwards. */
  mayBeGone: boolean;
  /** A temporary one may pass by itself. */
  isTemporary?: boolean;
  /** Nothing was accepted since the connections of the account logged in. */
  isFirstOfLogin?: boolean;
  /** `elapsedMs()` at which the reply came, and at which the last mail of the account in this process began that was accepted. */
  at?: number;
  acceptedBegunAt?: number;
}

interface Refused {
  refusal?: Refusal | undefined;
  /** Counts like a soft bounce once it is final. */
  isSoftBounce?: boolean | undefined;
}

/** From the SMTP reply to the ledger's row. */
export type MailOutcome =
  /** `begunAt`: `elapsedMs()` when its envelope left. */
  | ({ outcome: "sent"; reason: "accepted"; begunAt?: number } & ReplyDetails)
  /** Not accepted; may be tried again later. */
  | ({
      outcome: "deferred";
      reason: SmtpReason;
      /** The connection broke before the dot: the message may go at once over another one. */
      retry: boolean;
    } & Refused &
      ReplyDetails)
  | { outcome: "deferred"; reason: typeof UNDECIDED; retry: false }
  | ({
      outcome: "rejected";
      reason: SmtpReason | "unsendable" | "smtputf8_unsupported";
      suppress: boolean;
    } & Refused &
      ReplyDetails)
  /** The message may have been accepted; there is no way to find out. */
  | ({ outcome: "unknown"; reason: "no_answer" } & ReplyDetails)
  | AccountFailure
  | { outcome: "not_attempted"; reason: "pool_stopped" };

/** Reason of a recipient whose refusal is not decided yet: DEFERRED, and asked again should its attempt not decide it. */
export const UNDECIDED = "undecided";

export interface Mailed<Item> {
  item: Item;
  outcome: MailOutcome;
}

export const NOT_ATTEMPTED: MailOutcome = { outcome: "not_attempted", reason: "pool_stopped" };

/** The server has not answered the final dot. */
export const NO_ANSWER: MailOutcome = { outcome: "unknown", reason: "no_answer" };

export const UNSENDABLE: MailOutcome = {
  outcome: "rejected",
  reason: "unsendable",
  suppress: false,
  refusal: { key: "unsendable", isAccounts: false, mayBeGone: false },
};

export const SMTPUTF8_UNSUPPORTED: MailOutcome = {
  outcome: "rejected",
  reason: "smtputf8_unsupported",
  suppress: false,
};
