import { hash, randomBytes, randomInt } from "node:crypto";
import type { Vault } from "../secrets/crypto.ts";

/*
 * A challenge is `time.salt.target.signature`: a program has to find the number below `CHALLENGE_NUMBERS` whose text behind
 * the salt has the SHA-256 `target`, in hex. A proof is the challenge with that number behind it. The challenge alone is one,
 * too, once it is old enough: for people whose browser runs no scripts.
 */

/** Half of them take a browser a second, and an old telephone a few. */
export const CHALLENGE_NUMBERS = 50_000;
export const CHALLENGE_MINUTES = 10;
export const CHALLENGE_MS = CHALLENGE_MINUTES * 60_000;
export const WAIT_SECONDS = 15;

const targetOf = (salt: string, number: string): string => hash("sha256", `${salt}${number}`);

export function newChallenge(vault: Vault, formId: string) {
  const [time, salt] = [Date.now().toString(36), randomBytes(12).toString("base64url")];
  const target = targetOf(salt, String(randomInt(CHALLENGE_NUMBERS)));
  const signature = vault.sign("form", formId, time, salt, target);
  return { challenge: [time, salt, target, signature].join("."), salt, target, numbers: CHALLENGE_NUMBERS };
}

export interface Proof {
  /** It may be used once: the salt stands for it. */
  salt: string;
  madeAt: Date;
  isSolved: boolean;
  /** A challenge alone that is not old enough yet. */
  isEarly: boolean;
}

/** @returns undefined for a proof of another form, and one that is wrong or too old */
export function readProof(vault: Vault, formId: string, proof: string): Proof | undefined {
  const [time = "", salt = "", target = "", signature = "", number, ...rest] = proof.split(".");
  if (rest.length > 0 || !vault.verify(signature, "form", formId, time, salt, target)) return undefined;
  const madeAt = Number.parseInt(time, 36);
  const ageMs = Date.now() - madeAt;
  const isSolved = number !== undefined;
  if (ageMs >= CHALLENGE_MS || (isSolved && targetOf(salt, number) !== target)) return undefined;
  return { salt, madeAt: new Date(madeAt), isSolved, isEarly: !isSolved && ageMs < WAIT_SECONDS * 1_000 };
}
