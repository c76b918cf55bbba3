/** Codes that do not read well as they are. */
const REASONS: Readonly<Record<string, string>> = {
  access_revoked: "the mailbox revoked Mailkeel's access",
  account_gone: "the account is no longer connected",
  account_not_active: "the account is not working",
  delivery_failures: "its server failed for three days",
  login_refused: "the mail server refuses the user name or password",
  sender_refused: "the mail server refuses the from address",
  suppressed: "the address is suppressed",
  tls_failed: "no secure connection could be made",
};

/** Of a code, or of codes behind the ids of accounts: `acc_… login_refused, acc_… tls_failed`. */
export function reasonText(reason: string): string {
  const codes = reason.split(", ").map((part) => part.split(" ").at(-1)?.split(":")[0] ?? part);
  return [...new Set(codes)].map((code) => REASONS[code] ?? code.replaceAll("_", " ")).join(", ");
}

/** Why a send is paused, and what to do. @param reason null where an operator paused it */
export function pauseText(reason: string | null): string {
  switch (reason) {
    case null:
      return "An operator of the service paused it and has to resume it: ask them why.";
    case "paused_by_client":
      return "Your team paused it, here or through the API. Resume it when you are ready.";
    case "complaint_rate_exceeded":
      return "Too many people marked the team's emails as spam. Find out which list they came from, and stop emailing people who did not ask for it. An operator of the service then resumes the send.";
    case "database_restored":
    case "workflow_ended":
      return "The service stopped it after an internal failure. An operator will check and resume it.";
    case "policy_refusals":
      return "The mail server refuses the account, or every recipient alike, so no address was marked as bounced. Its reply is shown with the account under Accounts: fix what it names, then resume the send. If these addresses are wrong, ask an operator of the service.";
    case "mails_unsendable":
      return "The emails could not be created from this draft. Cancel the send, and send a corrected copy.";
    default:
      return `The emails cannot be sent: ${reasonText(reason)}. Fix the account under Accounts, then resume the send.`;
  }
}

export const percent = (fraction: number, digits = 1): string => `${(fraction * 100).toFixed(digits)}%`;

/** A dash where there is nothing to divide by. */
export const shortPercent = (rate: number | null): string =>
  rate === null ? "–" : percent(rate, rate > 0 && rate < 0.001 ? 2 : 1);

/** Of a send that did not reach all: "14,200 of 20,000 people". */
export const partOf = (sent: number, recipients: number): string => `${sent.toLocaleString()} of ${people(recipients)}`;

export const people = (count: number): string => `${count.toLocaleString()} ${count === 1 ? "person" : "people"}`;
