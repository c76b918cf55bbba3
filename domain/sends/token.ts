import { ID_PREFIX } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";

/** How long a confirmation token is valid, in seconds. The preview's `expires_at` shows its end to API clients. */
export const TOKEN_LIFETIME_SECONDS = 15 * 60;

/** The facts that a token signs. The token itself is never stored, and Temporal never sees it. */
export interface TokenFacts {
  previewId: string;
  apiKeyId: string;
  planDigest: string;
  expiresAt: Date;
}

const signed = ({ previewId, apiKeyId, planDigest, expiresAt }: TokenFacts) =>
  [previewId, apiKeyId, planDigest, expiresAt.getTime()] as const;

/** Makes `<preview id>.<HMAC>`. The same facts give the same token, so a repeated preview answers the same one. */
export function confirmationToken(vault: Vault, facts: TokenFacts): string {
  return `${facts.previewId}.${vault.sign("confirmation", ...signed(facts))}`;
}

const SHAPE = new RegExp(`^(${ID_PREFIX.send}_[0-9a-hjkmnp-tv-z]{26})\\.([\\w-]{43})$`);

/** Reads the preview ID from a token without verifying it; undefined when it does not look like a token. */
export function previewIdOf(token: string): string | undefined {
  return SHAPE.exec(token)?.[1];
}

/** Whether this service made the token from exactly these facts. */
export function isGenuine(vault: Vault, token: string, facts: TokenFacts): boolean {
  const match = SHAPE.exec(token);
  return match?.[1] === facts.previewId && vault.verify(match[2] ?? "", "confirmation", ...signed(facts));
}
