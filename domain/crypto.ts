import {
  createCipheriv,
  createDecipheriv,
  createHmac,
  createSecretKey,
  hkdfSync,
  type KeyObject,
  randomBytes,
  timingSafeEqual,
} from "node:crypto";
import type { Env } from "../config/env.ts";

/** Purposes of the derived keys; each purpose has a key of its own. */
export type KeyPurpose = "api-key" | "cursor" | "confirmation" | "idempotency" | "link" | "message-id" | "update-id";

/** Holds the service's keys: signs for a purpose, encrypts stored secrets. */
export interface Vault {
  /** HMAC-SHA256 under the purpose's own key, base64url. */
  sign(purpose: KeyPurpose, ...parts: (string | number)[]): string;
  /** Compares in constant time with the result of `sign`. */
  verify(signature: string, purpose: KeyPurpose, ...parts: (string | number)[]): boolean;
  /** AES-256-GCM: `keyId.iv.tag.ciphertext`, base64url. `context` binds the text to its row. */
  encrypt(plain: string, context: string): string;
  /** @throws {Error} when the key is unknown or the text or context was altered */
  decrypt(sealed: string, context: string): string;
}

const HASH = "sha256";
const CIPHER = "aes-256-gcm";
const IV_BYTES = 12;

/** Compares two strings in a time that depends on their lengths only. */
export function equalConstantTime(a: string, b: string): boolean {
  const left = Buffer.from(a);
  const right = Buffer.from(b);
  return left.length === right.length && timingSafeEqual(left, right);
}

/** Opens the vault with the settings SIGNING_SECRET and ENCRYPTION_KEYS. */
export function openVault({ SIGNING_SECRET, ENCRYPTION_KEYS }: Pick<Env, "SIGNING_SECRET" | "ENCRYPTION_KEYS">): Vault {
  const root = Buffer.from(SIGNING_SECRET, "base64");
  // Key objects, because an HMAC keyed with plain bytes imports them each time, at six times the cost of the hash.
  const derived = new Map<KeyPurpose, KeyObject>();
  const keyFor = (purpose: KeyPurpose): KeyObject => {
    const known = derived.get(purpose);
    if (known) return known;
    const key = createSecretKey(Buffer.from(hkdfSync(HASH, root, "", `mailkeel/${purpose}`, 32)));
    derived.set(purpose, key);
    return key;
  };

  const encryptionKeys = new Map(ENCRYPTION_KEYS.map(([id, key]) => [id, Buffer.from(key, "base64")]));
  const [current] = encryptionKeys;
  if (!current) throw new Error("ENCRYPTION_KEYS holds no key");
  const [currentId, currentKey] = current;

  const sign: Vault["sign"] = (purpose, ...parts) => {
    const hmac = createHmac(HASH, keyFor(purpose));
    // Each part is preceded by its length, so that ("ab", "c") and ("a", "bc") differ.
    for (const part of parts) hmac.update(`${String(part).length}:${part};`);
    return hmac.digest("base64url");
  };

  return {
    sign,
    verify: (signature, purpose, ...parts) => equalConstantTime(signature, sign(purpose, ...parts)),
    encrypt(plain, context) {
      const iv = randomBytes(IV_BYTES);
      const cipher = createCipheriv(CIPHER, currentKey, iv).setAAD(Buffer.from(context));
      const sealed = Buffer.concat([cipher.update(plain, "utf8"), cipher.final()]);
      return [currentId, ...[iv, cipher.getAuthTag(), sealed].map((part) => part.toString("base64url"))].join(".");
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
