import { idOfSuffix, suffixOfId } from "../ids.ts";
import { equalConstantTime, type Vault } from "./crypto.ts";

/** Records with a public page of their own: each is signed under a key of its kind. */
export type ReferencedKind = "form" | "list" | "newsletter";

const SIGNATURE_LENGTH = 22;

/**
 * Signs a part of a public path for years: mails and websites that hold the path outlive each signing secret, so the signature is
 * a hash under the database's own key, which no rotation changes.
 */
export const lastingSignature = (vault: Vault, kind: ReferencedKind | "image", text: string): string =>
  vault.hash(kind, text).slice(0, SIGNATURE_LENGTH);

/** The last part of a page's path. */
export function referenceOf(vault: Vault, kind: ReferencedKind, id: string): string {
  const suffix = suffixOfId(kind, id);
  return `${suffix}.${lastingSignature(vault, kind, suffix)}`;
}

/** The id of the record with this reference; undefined for one that this service did not sign. */
export function readReference(vault: Vault, kind: ReferencedKind, reference: string): string | undefined {
  const id = idOfSuffix(kind, reference.split(".", 1)[0] ?? "");
  return equalConstantTime(reference, referenceOf(vault, kind, id)) ? id : undefined;
}
