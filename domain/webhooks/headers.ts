/** Custom headers of an endpoint, names as they were typed. */
export type CustomHeaders = Record<string, string>;

export const MAX_HEADERS = 20;
const MAX_NAME_LENGTH = 128;
export const MAX_VALUE_LENGTH = 1_000;
/** Of all of them as they go over the wire: common servers take 16 KiB of headers in all. */
export const MAX_TOTAL_BYTES = 8 * 1_024;
/** A colon, a space, a line end. */
const BYTES_AROUND = 4;

/** A token of RFC 9110. */
const TOKEN = /^[!#$%&'*+\-.^_`|~0-9A-Za-z]+$/;
/** Visible ASCII, with spaces inside: nothing that could end the header or reads as another charset. */
const VALUE = /^[\x21-\x7e](?:[\x20-\x7e]*[\x21-\x7e])?$/;

/** Names that clients cannot set, in lower case; a star stands for any ending. */
export const RESERVED_HEADERS = [
  "x-service-*",
  "accept-encoding",
  "connection",
  "content-encoding",
  "content-length",
  "content-type",
  "cookie",
  "date",
  "expect",
  "forwarded",
  "host",
  "http2-settings",
  "keep-alive",
  "proxy-*",
  "set-cookie",
  "te",
  "trailer",
  "transfer-encoding",
  "upgrade",
  "user-agent",
  "via",
  "x-forwarded-*",
  "x-real-ip",
] as const;

/** Common firewalls refuse requests without a `User-Agent`; its URL explains these requests to a receiver's operator. */
export const userAgent = (publicUrl: string): string =>
  `Mailkeel-Webhooks/1 (+${new URL("/docs/webhooks", publicUrl).href})`;

const isReserved = (name: string): boolean => {
  const lower = name.toLowerCase();
  return RESERVED_HEADERS.some((reserved) =>
    reserved.endsWith("*") ? lower.startsWith(reserved.slice(0, -1)) : lower === reserved,
  );
};

/** An error in a set of headers; `name` is missing when the set as a whole is wrong. */
export interface HeaderProblem {
  name?: string;
  message: string;
}

const problemOfName = (name: string): string | undefined => {
  if (name.length > MAX_NAME_LENGTH) return `has a name of more than ${MAX_NAME_LENGTH} characters`;
  if (!TOKEN.test(name)) return "is not the name of a header";
  return isReserved(name) ? "is reserved and cannot be set" : undefined;
};

const problemOfValue = (value: string): string | undefined => {
  if (value === "") return "must not be empty";
  if (value.length > MAX_VALUE_LENGTH) return `must be at most ${MAX_VALUE_LENGTH} characters`;
  return VALUE.test(value)
    ? undefined
    : "must be printable ASCII, without line breaks and without spaces at either end";
};

/** Everything that keeps these headers from being sent as they are; empty for a valid set. */
export function headerProblems(headers: Readonly<CustomHeaders>): HeaderProblem[] {
  const entries = Object.entries(headers);
  if (entries.length > MAX_HEADERS) return [{ message: `must be at most ${MAX_HEADERS} headers` }];
  const seen = new Set<string>();
  const problems = entries.flatMap(([name, value]): HeaderProblem[] => {
    const twice = seen.has(name.toLowerCase());
    seen.add(name.toLowerCase());
    const message = problemOfName(name) ?? problemOfValue(value) ?? (twice ? "is given twice" : undefined);
    return message === undefined ? [] : [{ name, message }];
  });
  if (problems.length > 0) return problems;
  const bytes = entries.reduce((sum, [name, value]) => sum + name.length + value.length + BYTES_AROUND, 0);
  return bytes > MAX_TOTAL_BYTES ? [{ message: `must be at most ${MAX_TOTAL_BYTES} bytes in all` }] : [];
}
