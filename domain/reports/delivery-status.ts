/** Of one report. */
export const MAX_REPORTED = 100;

/** RFC 3464, 2.3. */
export interface StatusGroup {
  /** Final-Recipient, or Original-Recipient where that is missing. */
  address: string;
  /** The mail went to another address, such as an alias, which led to this one. */
  isForwarded: boolean;
  /** In lower case, or empty. */
  action: string;
  /** E.g. "5.1.1", or empty. */
  status: string;
  diagnostic: string;
}

/** With each field in one line. */
export const unfold = (text: string): string => text.replace(/\n[ \t]+(?=\S)/g, " ");

/** Fields by name in lower case, the first of a name. Some MTAs leave out the empty line before the next recipient. */
function groupsOf(text: string): Map<string, string>[] {
  const groups = [new Map<string, string>()];
  for (const line of unfold(text).split("\n")) {
    const [, given = "", value = ""] = /^([^:]+):(.*)/.exec(line) ?? [];
    const name = given.trim().toLowerCase();
    const fields = groups.at(-1);
    const isNext = /^(?:final|original)-recipient$/.test(name) && fields?.has(name);
    if (line.trim() === "" || isNext) groups.push(new Map(isNext ? [[name, value.trim()]] : []));
    else if (name !== "" && !fields?.has(name)) fields?.set(name, value.trim());
  }
  return groups;
}

/** Of `rfc822; <user@example.com>`, `rfc822; "User" <user@example.com>` or `rfc822; user@example.com (User)`. */
export function addressOf(field: string): string {
  const value = field
    .slice(field.indexOf(";") + 1)
    .replace(/\([^()]*\)\s*$/, "")
    .trim();
  return (/<([^<>]*)>$/.exec(value)?.[1] ?? value).replace(/^<|>$/g, "").trim().toLowerCase();
}

/** Neither a local name nor the empty path. */
export const WHOLE_ADDRESS = /^\S{1,320}@[^\s@.]{1,255}\.\S/;

const unquoted = (address: string): string => address.replace(/^"|"(?=@)/g, "");

/** Some MTAs put the reply code before it. */
const STATUS = /^(?:[245]\d{2}[ -])?([245]\.\d{1,3}\.\d{1,3})(?!\.?\d)/;

export function readDeliveryStatus(text: string): StatusGroup[] {
  const recipients: StatusGroup[] = [];
  for (const fields of groupsOf(text)) {
    const field = (name: string) => fields.get(name) ?? "";
    const withoutComments = (name: string) =>
      field(name)
        .replace(/\([^()]*\)/g, "")
        .trim();
    const status = STATUS.exec(withoutComments("status"))?.[1] ?? "";
    const final = addressOf(field("final-recipient"));
    const original = addressOf(field("original-recipient"));
    // RFC 3464, 2.3.1 and 2.3.2: the reporting host alone may know the final one. Sendmail adds the member of an alias.
    const isWhole = (name: string) => WHOLE_ADDRESS.test(name);
    const address = [addressOf(field("x-actual-recipient")), final, original].find(isWhole) ?? (final || original);
    // MTAs leave out the others.
    if (address === "" && status === "" && !fields.has("action")) continue;
    recipients.push({
      address,
      isForwarded: isWhole(final) && isWhole(original) && unquoted(final) !== unquoted(original),
      action: /^[a-z]*/.exec(withoutComments("action").toLowerCase())?.[0] ?? "",
      status,
      // No rule needs the type of the code ("smtp;", "x-unix;").
      diagnostic: field("diagnostic-code")
        .replace(/^[\w-]{1,40} ?;/, "")
        .trim(),
    });
  }
  const named = recipients.filter(({ address }) => address !== "");
  return (named.length > 0 ? named : recipients).slice(0, MAX_REPORTED);
}
