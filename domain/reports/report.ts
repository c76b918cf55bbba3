/** The outcome that an incoming mail reports for one recipient of a sent mail; `none` for other mail. */
export type ReportKind = "hard" | "soft" | "complaint" | "none";

export interface ReportedRecipient {
  /** In lower case, as the report spells it; empty where it names none. */
  address: string;
  kind: ReportKind;
  /** The server still tries to deliver: the mail may yet arrive. Only with kind `soft`. */
  isDelay: boolean;
  /** The bounce is about the mail's content or its sender, not about the address. Only with kind `soft`. */
  isSendersFault: boolean;
  /** Name of the rule that decided; safe to log. */
  rule: string;
}

/** A recipient whose kind follows from the report alone, without a reply. A soft one is a delay. */
export const reportedRecipient = (
  address: string,
  kind: Exclude<ReportKind, "hard">,
  rule: string,
): ReportedRecipient => ({ address, kind, isDelay: kind === "soft", isSendersFault: false, rule });

/**
 * Types of feedback that are not a recipient's complaint: RFC 6591 (authentication failures; "dkim" and "dmarc" before it),
 * RFC 6430 (not-spam). All other types are complaints: a recipient who reports a mail in any way is not mailed again.
 */
const NO_COMPLAINT = new Set(["auth-failure", "dkim", "dmarc", "not-spam"]);

/** @param type of feedback (RFC 5965), in lower case */
export const isComplaint = (type: string): boolean => !NO_COMPLAINT.has(type);
