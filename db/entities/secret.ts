import { defineEntity } from "@mikro-orm/postgresql";
import { code, instant, sealed } from "./shared.ts";

export const SecretFingerprintSchema = defineEntity({
  name: "secret_fingerprints",
  properties: {
    setting: code().$type<"SIGNING_SECRET" | "ENCRYPTION_KEYS">().primary(),
    keyId: code().primary(),
    /** HKDF-SHA256 of the key, base64url. */
    fingerprint: code(),
    /** From then on it has signed or encrypted. */
    usedSince: instant().nullable(),
    /** From then on no process may sign or encrypt with it, nor needs it to start. */
    retiredAt: instant().nullable(),
    createdAt: instant().defaultRaw("now()"),
  },
});

/** Sealed under ENCRYPTION_KEYS. */
export const DatabaseKeySchema = defineEntity({
  name: "database_keys",
  properties: {
    name: code().primary(),
    encryptedKey: sealed(),
    createdAt: instant().defaultRaw("now()"),
  },
});
