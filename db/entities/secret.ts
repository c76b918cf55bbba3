import { defineEntity } from "@mikro-orm/postgresql";
import { code, instant, sealed } from "./shared.ts";

const SecretFingerprintSchema = defineEntity({
  name: "SecretFingerprint",
  tableName: "secret_fingerprints",
  properties: {
    setting: code().$type<"SIGNING_SECRET" | "ENCRYPTION_KEYS">().primary(),
    keyId: code().primary(),
    /** HKDF-SHA256 of the key, base64url. */
    fingerprint: code(),
    /** From then on it has signed or encrypted. */
    usedSince: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** Sealed under ENCRYPTION_KEYS. */
const DatabaseKeySchema = defineEntity({
  name: "DatabaseKey",
  tableName: "database_keys",
  properties: {
    name: code().primary(),
    encryptedKey: sealed(),
    createdAt: instant().defaultRaw("now()"),
  },
});

export const secretEntities = [SecretFingerprintSchema, DatabaseKeySchema] as const;
