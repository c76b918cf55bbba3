/** Of one report. */
export const MAX_REPORTED = 100;

/** RFC 3464, 2.3. */
export interface StatusGroup {
  /** Final-Recipient, or Original-Recipient where that is missing. */
  address: string;
  /** In lower case, or empty. */
  action: string;
  /** E.g. "5.1.1", or empty. */
  status: string;
  diagnostic: string;
}

const MAX_GROUPS = 2 * MAX_REPORTED;

/** Unfolded, by name in lower case; the first of a name counts. */
export function readFields(group: string): Map<string, string> {
  const fields = new Map<string, string>();
  let name = "";
  for (const line of group.split("\n")) {
    if (/^[ \t]/.test(line)) {
      if (name !== "") fields.set(name, `${fields.get(name)} ${line.trim()}`);
      continue;
    }
    const colon = line.indexOf(":");
    name = colon > 0 ? line.slice(0, colon).trim().toLowerCase() : "";
    if (fields.has(name)) name = "";
    if (name !== "") fields.set(name, line.slice(colon + 1).trim());
  }
  return fields;
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

/** Final-Recipient, unless only the reporting host knows that address (RFC 3464, 2.3.1 and 2.3.2). */
function recipientOf(fields: Map<string, string>): string | undefined {
  const named = [fields.get("final-recipient"), fields.get("original-recipient")].filter(
    (field) => field !== undefined,
  );
  const addresses = named.map(addressOf);
  return addresses.find((address) => WHOLE_ADDRESS.test(address)) ?? addresses.find((address) => address !== "");
}

/** Some MTAs put the reply code before it. */
const STATUS = /^(?:[245]\d{2}[ -])?([245]\.\d{1,3}\.\d{1,3})(?!\.?\d)/;

export function readDeliveryStatus(text: string): StatusGroup[] {
  const groups = text.split(/\n[ \t]*\n/).slice(0, MAX_GROUPS);
  const recipients: StatusGroup[] = [];
  for (const fields of groups.map(readFields)) {
    const recipient = recipientOf(fields);
    const status = STATUS.exec(fields.get("status") ?? "")?.[1] ?? "";
    // MTAs leave out the others.
    if (recipient === undefined && status === "" && !fields.has("action")) continue;
    recipients.push({
      address: recipient ?? "",
      action: /^[a-z]*/.exec((fields.get("action") ?? "").toLowerCase())?.[0] ?? "",
      status,
      // No rule needs the type of the code ("smtp;", "x-unix;").
      diagnostic: (fields.get("diagnostic-code") ?? "").replace(/^[\w-]{1,40} ?;/, "").trim(),
    });
  }
  const named = recipients.filter(({ address }) => address !== "");
  return (named.length > 0 ? named : recipients).slice(0, MAX_REPORTED);
}
