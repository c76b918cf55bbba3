import { defineEntity, p } from "@mikro-orm/postgresql";
import { instant } from "./shared.ts";

/** Recognises a key of SIGNING_SECRET or ENCRYPTION_KEYS without showing it. */
const SecretFingerprintSchema = defineEntity({
  name: "SecretFingerprint",
  tableName: "secret_fingerprints",
  properties: {
    setting: p.text().$type<"SIGNING_SECRET" | "ENCRYPTION_KEYS">().primary(),
    keyId: p.text().primary(),
    /** The salt, base64url, and `cost.hash`: a scrypt hash of the key, base64url, with its cost. */
    salt: p.text(),
    fingerprint: p.text(),
    /** When a process first started with this key in the first place: from then on it has signed or encrypted. */
    usedSince: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});
export class SecretFingerprint extends SecretFingerprintSchema.class {}
SecretFingerprintSchema.setClass(SecretFingerprint);

/** A key that the service made for this database, sealed under ENCRYPTION_KEYS. */
const DatabaseKeySchema = defineEntity({
  name: "DatabaseKey",
  tableName: "database_keys",
  properties: {
    name: p.text().primary(),
    encryptedKey: p.text(),
    createdAt: instant().defaultRaw("now()"),
  },
});
export class DatabaseKey extends DatabaseKeySchema.class {}
DatabaseKeySchema.setClass(DatabaseKey);

export const secretEntities = [SecretFingerprintSchema, DatabaseKeySchema] as const;
