import { idOfSuffix, suffixOfId } from "../ids.ts";
import { equalConstantTime, type Vault } from "./crypto.ts";

/** Records with a public page of their own: each is signed under a key of its kind. */
export type ReferencedKind = "form" | "list" | "newsletter";

const SIGNATURE_LENGTH = 22;

/** The last part of a page's path. Signed as an image's name: websites lead to the page for years. */
export function referenceOf(vault: Vault, kind: ReferencedKind, id: string): string {
  const suffix = suffixOfId(kind, id);
  return `${suffix}.${vault.hash(kind, suffix).slice(0, SIGNATURE_LENGTH)}`;
}

/** The id of the record with this reference; undefined for one that this service did not sign. */
export function readReference(vault: Vault, kind: ReferencedKind, reference: string): string | undefined {
  const id = idOfSuffix(kind, reference.split(".", 1)[0] ?? "");
  return equalConstantTime(reference, referenceOf(vault, kind, id)) ? id : undefined;
}
