import { type MailRef, mailAddressesIn, readMailAddress, readMailToken, unsubscribeTokensIn } from "../mail/links.ts";
import type { Vault } from "../secrets/crypto.ts";
import type { ClassifiedMail } from "./classify.ts";
import { mailedAddresses } from "./plain-bounce.ts";
import type { MailReport, ReportFinding } from "./record.ts";
import type { ReportKind } from "./report.ts";

/** A sent mail contains one or two of each. */
const MAX_TOKENS = 10;

/**
 * Undefined for other mail, and for a delay. A report about members of a list or an alias is a soft bounce: the mailed
 * address took the mail. So is one about several recipients, unless it is hard for each of them.
 */
function kindOf({ recipients, returned }: ClassifiedMail): ReportFinding | undefined {
  const settled = recipients.filter(({ isDelay }) => !isDelay);
  const has = (kind: ReportKind) => settled.some((recipient) => recipient.kind === kind);
  if (has("complaint")) return { kind: "complaint" };
  const mailed = mailedAddresses(returned);
  const isMailed = (address: string) => address === "" || mailed.length === 0 || mailed.includes(address);
  if (has("hard") && settled.every(({ kind, address }) => kind === "hard" && isMailed(address)))
    return { kind: "bounce:hard" };
  if (!has("hard") && !has("soft")) return undefined;
  return { kind: "bounce:soft", isSendersFault: settled.every((recipient) => recipient.isSendersFault) };
}

/**
 * Finds the sent mail by what is signed: the unsubscribe link, return path or unsubscribe address, which feedback loops
 * leave. A Message-ID is no proof: a recipient can derive those of others from its number.
 */
function returnedRef(vault: Vault, { returned }: ClassifiedMail): MailRef | undefined {
  for (const token of unsubscribeTokensIn(returned, MAX_TOKENS)) {
    const ref = readMailToken(vault, "u", token);
    if (ref !== undefined) return ref;
  }
  for (const localPart of mailAddressesIn(returned, MAX_TOKENS)) {
    const address = readMailAddress(vault, localPart);
    if (address !== undefined) return address.ref;
  }
  return undefined;
}

/**
 * @param refs mails of the return paths that it came to; without any, the returned mail decides
 * @returns undefined for a mail that reports nothing; none for a report about no mail of this service
 */
export function reportsOf(vault: Vault, mail: ClassifiedMail, refs: readonly MailRef[]): MailReport[] | undefined {
  const report = kindOf(mail);
  if (report === undefined) return undefined;
  const returned = refs.length > 0 ? undefined : returnedRef(vault, mail);
  return [...refs, ...(returned === undefined ? [] : [returned])].map((ref) => ({ ...ref, ...report }));
}
