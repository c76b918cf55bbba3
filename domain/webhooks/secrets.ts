import { randomBytes } from "node:crypto";
import { sealContext, type Vault } from "../secrets/crypto.ts";
import type { CustomHeaders } from "./headers.ts";

const SECRET_BYTES = 32;

export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString("base64url")}`;

/** The same for all sealed columns: a rotation of the secret moves its text from one to another. */
const contextOf = (webhookId: string) => sealContext("webhook_endpoints", webhookId);

/** Bound to its endpoint. */
export const sealSecret = (vault: Vault, webhookId: string, secret: string): string =>
  vault.encrypt(secret, contextOf(webhookId));

export const openSecret = (vault: Vault, webhookId: string, sealed: string): string =>
  vault.decrypt(sealed, contextOf(webhookId));

/** @returns null for none */
export const sealHeaders = (vault: Vault, webhookId: string, headers: CustomHeaders): string | null =>
  Object.keys(headers).length === 0 ? null : vault.encrypt(JSON.stringify(headers), contextOf(webhookId));

export const openHeaders = (vault: Vault, webhookId: string, sealed: string | null): CustomHeaders =>
  sealed === null ? {} : (JSON.parse(vault.decrypt(sealed, contextOf(webhookId))) as CustomHeaders);
