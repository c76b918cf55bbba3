/** `none`: other mail. */
export type ReportKind = "hard" | "soft" | "complaint" | "none";

export interface ReportedRecipient {
  /** In lower case; empty where the report names none. */
  address: string;
  kind: ReportKind;
  /** The mail may yet arrive. Only with kind `soft`. */
  isDelay: boolean;
  /** Only with kind `soft`. */
  isSendersFault: boolean;
}

/** Follows from the report alone, without a reply. A soft one is a delay. */
export const reportedRecipient = (address: string, kind: Exclude<ReportKind, "hard">): ReportedRecipient => ({
  address,
  kind,
  isDelay: kind === "soft",
  isSendersFault: false,
});

/** RFC 6591 ("dkim" and "dmarc" before it), RFC 6430. All other types are complaints. */
const NO_COMPLAINT = new Set(["auth-failure", "dkim", "dmarc", "not-spam"]);

/** @param type RFC 5965, in lower case */
export const isComplaint = (type: string): boolean => !NO_COMPLAINT.has(type);
