import { ID_PREFIX } from "../../ids.ts";
import type { Vault } from "../../secrets/crypto.ts";

export const TOKEN_LIFETIME_SECONDS = 15 * 60;

/** The token itself is never stored, and Temporal never sees it. */
export interface TokenFacts {
  previewId: string;
  apiKeyId: string;
  planDigest: string;
  expiresAt: Date;
}

const signed = ({ previewId, apiKeyId, planDigest, expiresAt }: TokenFacts) =>
  [previewId, apiKeyId, planDigest, expiresAt.getTime()] as const;

/** `<preview id>.<HMAC>`. The same facts give the same token, so a repeated preview answers the same one. */
export function confirmationToken(vault: Vault, facts: TokenFacts): string {
  return `${facts.previewId}.${vault.sign("confirmation", ...signed(facts))}`;
}

const SHAPE = new RegExp(`^(${ID_PREFIX.send}_[0-9a-hjkmnp-tv-z]{26})\\.([\\w-]{43})$`);

/** Without verifying it; undefined when it does not look like a token. */
export function previewIdOf(token: string): string | undefined {
  return SHAPE.exec(token)?.[1];
}

export function isGenuine(vault: Vault, token: string, facts: TokenFacts): boolean {
  const match = SHAPE.exec(token);
  return match?.[1] === facts.previewId && vault.verify(match[2] ?? "", "confirmation", ...signed(facts));
}
