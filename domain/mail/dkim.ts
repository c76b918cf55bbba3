import { hash, type KeyObject, sign } from "node:crypto";
import { promisify } from "node:util";
import { foldEvery } from "./header.ts";

export const DKIM_ALGORITHMS = ["rsa", "ed25519"] as const;
export type DkimAlgorithm = (typeof DKIM_ALGORITHMS)[number];

export interface DkimKey {
  /** In ASCII, as DNS has it */
  domain: string;
  selector: string;
  algorithm: DkimAlgorithm;
  privateKey: KeyObject;
}

/** RFC 8058, 4: both fields of the one-click unsubscribe must be signed. A relay may remove the provider's own header. */
const SIGNED_FIELDS = [
  "From",
  "Reply-To",
  "To",
  "Subject",
  "Date",
  "Message-ID",
  "List-Unsubscribe",
  "List-Unsubscribe-Post",
  "MIME-Version",
  "Content-Type",
] as const;
export type SignedField = (typeof SIGNED_FIELDS)[number];

/** RFC 5322 recommends 78. */
const LINE_CHARS = 76;
/** They leave room for ` b=`. */
const SIGNATURE_CHARS = LINE_CHARS - 4;
const END_OF_HEADER = "\r\n\r\n";

/** RFC 6376, 3.3.1; RFC 8463, 3. */
const ALGORITHM_NAMES: Record<DkimAlgorithm, string> = { rsa: "rsa-sha256", ed25519: "ed25519-sha256" };

/** In libuv's pool: an RSA signature would cost the event loop more than the rest of a mail. */
const signInPool = promisify(sign);

/**
 * Makes the header fields to be put before a message (RFC 6376), one for each key, with their line breaks. The header is
 * signed relaxed, because relays fold it anew; the body as it is, because no relay has a reason to change its encoding.
 */
export type DkimSigner = (message: Buffer) => Promise<Buffer>;

/** @param except fields that the account's provider replaces */
export function dkimSigner(keys: readonly DkimKey[], except: readonly SignedField[] = []): DkimSigner {
  const fields = SIGNED_FIELDS.filter((name) => !except.includes(name));
  return async (message) => {
    const endOfHeader = message.indexOf(END_OF_HEADER);
    const present = readFields(message.toString("latin1", 0, endOfHeader));
    const bodyHash = hash("sha256", simpleBody(message.subarray(endOfHeader + END_OF_HEADER.length)), "base64");
    // Listed once more than it is in the header, so that an added field breaks the signature.
    const names = fields.flatMap((name) => (present.has(name.toLowerCase()) ? [name, name] : [name]));
    const signed = fields.flatMap((name) => present.get(name.toLowerCase()) ?? []).join("");
    const time = Math.floor(Date.now() / 1_000);
    const signatures = await Promise.all(
      keys.map(async ({ domain, selector, algorithm, privateKey }) => {
        const head =
          `DKIM-Signature: v=1; a=${ALGORITHM_NAMES[algorithm]}; c=relaxed/simple; t=${time};\r\n` +
          ` d=${domain}; s=${selector};\r\n ${foldNames(names)};\r\n bh=${bodyHash};\r\n b=`;
        const data = Buffer.from(signed + relaxed(head), "latin1");
        // RFC 8463: an Ed25519 signature covers the hash. RSA hashes the data itself.
        const signature =
          algorithm === "rsa"
            ? await signInPool("sha256", data, privateKey)
            : await signInPool(null, hash("sha256", data, "buffer"), privateKey);
        return `${head}${foldEvery(signature.toString("base64"), SIGNATURE_CHARS, "\r\n ")}\r\n`;
      }),
    );
    return Buffer.from(signatures.join(""), "latin1");
  };
}

/** By their names in lower case, each relaxed and with its line break. */
function readFields(header: string): Map<string, string> {
  const fields = new Map<string, string>();
  for (const field of header.split(/\r\n(?![ \t])/)) {
    fields.set(field.slice(0, field.indexOf(":")).toLowerCase(), `${relaxed(field)}\r\n`);
  }
  return fields;
}

/** RFC 6376, 3.4.2; without a line break at its end. */
function relaxed(field: string): string {
  const colon = field.indexOf(":");
  // UTF-8 is read as Latin-1 here, where one of its bytes is a no-break space.
  const value = field
    .slice(colon + 1)
    .replace(/\r\n/g, "")
    .replace(/[ \t]+/g, " ");
  const start = value.startsWith(" ") ? 1 : 0;
  const end = value.length > start && value.endsWith(" ") ? value.length - 1 : value.length;
  return `${field.slice(0, colon).toLowerCase()}:${value.slice(start, end)}`;
}

const CRLF = Buffer.from("\r\n");

/** Without empty lines at its end (RFC 6376, 3.4.3). */
function simpleBody(body: Buffer): Buffer {
  let end = body.length;
  while (end >= 4 && body.toString("latin1", end - 4, end) === END_OF_HEADER) end -= 2;
  return end === 0 ? CRLF : body.subarray(0, end);
}

function foldNames(names: readonly string[]): string {
  let folded = "h=";
  let used = folded.length + 1;
  for (const [i, name] of names.entries()) {
    const item = i === 0 ? name : `:${name}`;
    if (used + item.length > LINE_CHARS) {
      folded += "\r\n ";
      used = 1;
    }
    folded += item;
    used += item.length;
  }
  return folded;
}
