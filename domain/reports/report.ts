/** What a mail says about one recipient of a mail that went out. */
export type ReportKind = "hard" | "soft" | "complaint" | "none";

export interface ReportedRecipient {
  /** In lower case, as the report spells it; empty where it names none. */
  address: string;
  kind: ReportKind;
  /** Delivery is still tried: the mail may arrive yet. Only of a soft kind. */
  isDelay: boolean;
  /** A bounce for the mail's content or its sender, which says nothing about the address. Only of a soft kind. */
  isSendersFault: boolean;
  /** Name of the rule that decided; safe to log. */
  rule: string;
}

/**
 * Types of feedback that are no complaint of a recipient: RFC 6591 (authentication failures; "dkim" and "dmarc" before it),
 * RFC 6430 (not-spam). All others are: a mail that its recipient reports, in whatever words, is not mailed again.
 */
const NO_COMPLAINT = new Set(["auth-failure", "dkim", "dmarc", "not-spam"]);

/** @param type of feedback (RFC 5965), in lower case */
export const isComplaint = (type: string): boolean => !NO_COMPLAINT.has(type);
