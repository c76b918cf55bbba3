import { randomBytes } from "node:crypto";
import { sealContext, type Vault } from "../secrets/crypto.ts";
import type { CustomHeaders } from "./headers.ts";

const SECRET_BYTES = 32;

export const newSecret = (): string => `whsec_${randomBytes(SECRET_BYTES).toString("base64url")}`;

const secretContext = (webhookId: string) => sealContext("webhook_endpoints", "encrypted_secret", webhookId);
const headersContext = (webhookId: string) => sealContext("webhook_endpoints", "encrypted_headers", webhookId);

/** Bound to its endpoint. */
export const sealSecret = (vault: Vault, webhookId: string, secret: string): string =>
  vault.encrypt(secret, secretContext(webhookId));

export const openSecret = (vault: Vault, webhookId: string, sealed: string): string =>
  vault.decrypt(sealed, secretContext(webhookId));

/** @returns null for none */
export const sealHeaders = (vault: Vault, webhookId: string, headers: CustomHeaders): string | null =>
  Object.keys(headers).length === 0 ? null : vault.encrypt(JSON.stringify(headers), headersContext(webhookId));

export const openHeaders = (vault: Vault, webhookId: string, sealed: string | null): CustomHeaders =>
  sealed === null ? {} : (JSON.parse(vault.decrypt(sealed, headersContext(webhookId))) as CustomHeaders);
