import type { MailReportKind } from "../../db/entities/engagement.ts";
import {
  type MailRef,
  mailAddressesIn,
  readReturnPath,
  readUnsubscribeAddress,
  readUnsubscribeToken,
  unsubscribeTokensIn,
} from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import type { ClassifiedMail } from "./classify.ts";
import type { MailReport, ReportFinding } from "./record.ts";
import type { ReportKind } from "./report.ts";

/** Tokens of a returned mail that are verified at most, and as many addresses. A sent mail contains one or two of each. */
const MAX_TOKENS = 10;

/**
 * The bounce or complaint that a classified mail reports of one sent mail; undefined for other mail, and for a delay,
 * after which the sent mail may still arrive. A report that names several recipients is about the members of a list or
 * an alias that was mailed: the bounce is hard only when it is hard for every member.
 */
function kindOf({ recipients }: ClassifiedMail): ReportFinding | undefined {
  const settled = recipients.filter(({ isDelay }) => !isDelay);
  const has = (kind: ReportKind) => settled.some((recipient) => recipient.kind === kind);
  const report = (kind: MailReportKind, isSendersFault = false) => ({ kind, isSendersFault });
  if (has("complaint")) return report("complaint");
  if (has("hard") && settled.every(({ kind }) => kind === "hard")) return report("bounce:hard");
  if (has("hard") || has("soft")) {
    return report(
      "bounce:soft",
      settled.every((recipient) => recipient.isSendersFault),
    );
  }
  return undefined;
}

/**
 * Identifies the sent mail that a report returns: by the unsubscribe link in its header or body, or by its return path or
 * unsubscribe address in its header or the report's fields. Feedback loops that redact the recipient leave these. All of them
 * are signed. The Message-ID is no proof: it contains a number, from which a recipient can derive those of other recipients.
 */
function returnedRef(vault: Vault, { returned }: ClassifiedMail): MailRef | undefined {
  for (const token of unsubscribeTokensIn(returned, MAX_TOKENS)) {
    const ref = readUnsubscribeToken(vault, token);
    if (ref !== undefined) return ref;
  }
  for (const localPart of mailAddressesIn(returned, MAX_TOKENS)) {
    const ref = readReturnPath(vault, localPart) ?? readUnsubscribeAddress(vault, localPart);
    if (ref !== undefined) return ref;
  }
  return undefined;
}

/**
 * The reports that a classified mail brings.
 * @param refs mails of the return paths that it came to; without any, the returned mail decides
 * @returns undefined for a mail that reports nothing; none for a report that shows no mail of this service
 */
export function reportsOf(vault: Vault, mail: ClassifiedMail, refs: readonly MailRef[]): MailReport[] | undefined {
  const report = kindOf(mail);
  if (report === undefined) return undefined;
  const returned = refs.length > 0 ? undefined : returnedRef(vault, mail);
  return [...refs, ...(returned === undefined ? [] : [returned])].map((ref) => ({ ...ref, ...report }));
}
