import type { Vault } from "../crypto.ts";
import { ID_PREFIX } from "../ids.ts";

/** How long a confirmation token is good for. Source: the contract's limits. */
export const TOKEN_LIFETIME_SECONDS = 15 * 60;

/** What a token is bound to. It is made over these, never stored, and never seen by Temporal. */
export interface TokenFacts {
  previewId: string;
  apiKeyId: string;
  planDigest: string;
  expiresAt: Date;
}

const signed = ({ previewId, apiKeyId, planDigest, expiresAt }: TokenFacts) =>
  [previewId, apiKeyId, planDigest, expiresAt.getTime()] as const;

/** `<preview id>.<HMAC>`; the same facts give the same token, so a replayed preview answers the same one. */
export function confirmationToken(vault: Vault, facts: TokenFacts): string {
  return `${facts.previewId}.${vault.sign("confirmation", ...signed(facts))}`;
}

const SHAPE = new RegExp(`^(${ID_PREFIX.send}_[0-9a-hjkmnp-tv-z]{26})\\.([\\w-]{43})$`);

/** The preview a token names, without a word on whether it is genuine; undefined when it has not the shape of one. */
export function previewIdOf(token: string): string | undefined {
  return SHAPE.exec(token)?.[1];
}

/** Whether the token was made by us over exactly these facts. */
export function isGenuine(vault: Vault, token: string, facts: TokenFacts): boolean {
  const match = SHAPE.exec(token);
  return match?.[1] === facts.previewId && vault.verify(match[2] ?? "", "confirmation", ...signed(facts));
}
