import { createCipheriv, createDecipheriv, hkdfSync, randomBytes, timingSafeEqual } from "node:crypto";
import type { Env } from "../../config/env.ts";
import type { Database } from "../../db/orm.ts";
import { type Hmac, hmacUnder } from "../../lib/hmac.ts";

/** Each has a key of its own under each signing secret. */
export type SigningPurpose = "cursor" | "confirmation" | "link" | "tracking" | "return-path" | "sign-in" | "form";
/** Each has a key of its own under the database's hash key. */
export type HashPurpose =
  | "api-key"
  | "idempotency"
  | "webhook-listener"
  | "report-source"
  | "erased-address"
  | "image"
  | "form"
  | "list"
  | "newsletter"
  | "session";

type Part = string | number;

export interface Vault {
  /** HMAC-SHA256 under the first signing secret, base64url; cut in a link, in hex in a return path. */
  sign(purpose: SigningPurpose, ...parts: Part[]): string;
  /** Under each signing secret, in constant time. */
  verify(signature: string, purpose: SigningPurpose, ...parts: Part[]): boolean;
  canHash(): boolean;
  /** HMAC-SHA256 under the database's hash key, which no rotation changes, base64url. */
  hash(purpose: HashPurpose, ...parts: Part[]): string;
  setHashKey(key: string): void;
  /** AES-256-GCM: `keyId.iv.tag.ciphertext`, base64url. `context` binds the text to its row. */
  encrypt(plain: string, context: string): string;
  /** @throws {Error} when the key is unknown or the text or context was altered */
  decrypt(sealed: string, context: string): string;
}

const HASH = "sha256";
const CIPHER = "aes-256-gcm";
const IV_BYTES = 12;

/** Characters of a signature where it is not whole: a link still fits into a line of text. */
const SIGNATURE_LENGTH: Partial<Record<SigningPurpose, number>> = { link: 22, tracking: 22 };

/** The same of a return path: servers change the case of addresses, and a local part has at most 64 characters. */
const HEX_LENGTH: Partial<Record<SigningPurpose, number>> = { "return-path": 24 };

export function equalConstantTime(a: string, b: string): boolean {
  const left = Buffer.from(a);
  const right = Buffer.from(b);
  return left.length === right.length && timingSafeEqual(left, right);
}

const KEY_BYTES = 32;

function macs<Purpose extends string>(root: Buffer): (purpose: Purpose, parts: Part[]) => string {
  const derived = new Map<Purpose, Hmac>();
  const hmacFor = (purpose: Purpose): Hmac => {
    const known = derived.get(purpose);
    if (known) return known;
    const hmac = hmacUnder(new Uint8Array(hkdfSync(HASH, root, "", `mailkeel/${purpose}`, KEY_BYTES)));
    derived.set(purpose, hmac);
    return hmac;
  };
  return (purpose, parts) => {
    // Each part is preceded by its length, so that ("ab", "c") and ("a", "bc") differ.
    let text = "";
    for (const part of parts) text += `${String(part).length}:${part};`;
    return hmacFor(purpose)("base64url", text);
  };
}

function firstOf<Key>([first]: Key[], setting: "SIGNING_SECRET" | "ENCRYPTION_KEYS"): Key {
  if (first === undefined) throw new Error(`This process does without ${setting} and cannot use it`);
  return first;
}

export const keyIdOf = (sealed: string): string => sealed.split(".", 1)[0] ?? "";

/**
 * Binds a sealed text to its row and column: moved to another one, it does not decrypt. A value and the one before it are
 * the same to it, because a rotation moves the text from one column to the other.
 */
export const sealContext = (table: keyof Database, column: string, ...key: string[]): string =>
  [table, column.replace(/^previous_/, ""), ...key].join("/");

/** To use a setting that is empty is an error. */
export function openVault({ SIGNING_SECRET, ENCRYPTION_KEYS }: Pick<Env, "SIGNING_SECRET" | "ENCRYPTION_KEYS">): Vault {
  const signers = SIGNING_SECRET.map(([, secret]) => macs<SigningPurpose>(Buffer.from(secret, "base64")));
  const encryptionKeys = new Map(ENCRYPTION_KEYS.map(([id, key]) => [id, Buffer.from(key, "base64")]));
  let hasher: ReturnType<typeof macs<HashPurpose>> | undefined;

  const signed = (signer: ReturnType<typeof macs<SigningPurpose>>, purpose: SigningPurpose, parts: Part[]) => {
    const mac = signer(purpose, parts);
    const hexLength = HEX_LENGTH[purpose];
    if (hexLength === undefined) return mac.slice(0, SIGNATURE_LENGTH[purpose]);
    return Buffer.from(mac, "base64url").toString("hex", 0, hexLength / 2);
  };
  const hash: Vault["hash"] = (purpose, ...parts) => {
    if (!hasher) throw new Error("This vault has no hash key: its process has not been admitted by the database");
    return hasher(purpose, parts);
  };

  return {
    sign: (purpose, ...parts) => signed(firstOf(signers, "SIGNING_SECRET"), purpose, parts),
    verify(signature, purpose, ...parts) {
      firstOf(signers, "SIGNING_SECRET");
      return signers.some((signer) => equalConstantTime(signature, signed(signer, purpose, parts)));
    },
    canHash: () => hasher !== undefined,
    hash,
    setHashKey(key) {
      hasher = macs<HashPurpose>(Buffer.from(key, "base64"));
    },
    encrypt(plain, context) {
      const [id, key] = firstOf([...encryptionKeys], "ENCRYPTION_KEYS");
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv(CIPHER, key, iv).setAAD(Buffer.from(context));
      const sealed = Buffer.concat([cipher.update(plain, "utf8"), cipher.final()]);
      return [id, ...[iv, cipher.getAuthTag(), sealed].map((part) => part.toString("base64url"))].join(".");
    },
    decrypt(sealed, context) {
      const [id = "", iv = "", tag = "", text = ""] = sealed.split(".");
      const key = encryptionKeys.get(id);
      if (!key) throw new Error(`No encryption key ${id}`);
      const decipher = createDecipheriv(CIPHER, key, Buffer.from(iv, "base64url"), { authTagLength: 16 });
      decipher.setAAD(Buffer.from(context)).setAuthTag(Buffer.from(tag, "base64url"));
      return decipher.update(Buffer.from(text, "base64url"), undefined, "utf8") + decipher.final("utf8");
    },
  };
}
