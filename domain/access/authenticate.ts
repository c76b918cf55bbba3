import type { EntityManager } from "../../db/orm.ts";
import { equalConstantTime, type Vault } from "../crypto.ts";
import { ApiError } from "../errors.ts";
import { type Access, type AccessCaller, type AccessToken, accessFor, type Holder } from "./access.ts";
import { keyLookup, keyOf, refuseEnded } from "./key-lookup.ts";
import { hashSecret, KEY_PREFIX, type ParsedKey, parseKey } from "./keys.ts";
import type { Allowance, RequestLimits, WindowCount } from "./request-limit.ts";

/** Every value of every header, as `IncomingMessage.headersDistinct` gives them, so that a second value is noticed. */
export type HeaderValues = NodeJS.Dict<string[]>;

/** An OAuth token that is good, and the member whom it acts for. */
export interface VerifiedToken {
  caller: AccessToken;
  holder: Holder;
  /** As the token claims them. */
  granted: readonly string[];
  /** The client's requests in the team, with this one. */
  window: WindowCount;
}

/**
 * Verifies an OAuth token and counts the request of its client, with one query.
 * @throws {ApiError} `invalid_token`; `service_unavailable` when the issuer's keys cannot be read; as `RequestLimits.find`
 */
export type TokenVerifier = (
  em: EntityManager,
  token: string,
  sender: Pick<Sender, "limits" | "client">,
) => Promise<VerifiedToken>;

/** The verifier of a service without an issuer. */
export const noTokens: TokenVerifier = async () => {
  throw new ApiError("invalid_token", "This service takes no OAuth tokens; send an API key.");
};

const BEARER = /^bearer(?: +(.*))?$/i;

function credentialsIn(headers: HeaderValues): { token: string; bearer: boolean }[] {
  const keys = (headers["x-api-key"] ?? []).map((token) => ({ token: token.trim(), bearer: false }));
  const bearers = (headers["authorization"] ?? []).flatMap((value) => {
    const match = BEARER.exec(value.trim());
    return match ? [{ token: (match[1] ?? "").trim(), bearer: true }] : [];
  });
  return [...bearers, ...keys].filter(({ token }) => token !== "");
}

/** A text with two dots that is no API key can only be meant as an OAuth token. */
const looksLikeToken = (text: string): boolean => !text.startsWith(KEY_PREFIX) && text.split(".").length === 3;

/** Compared with when no key matches, so that an unknown id takes as long as a known one. */
const NO_HASH = "-".repeat(43);

/** What every answer to a caller shows, also when the request is refused. */
export interface Identified {
  allowance: Allowance;
  /** The version for requests that name none. */
  apiVersion: string;
}

/** The sender of a request, and the limits on it. */
export interface Sender {
  limits: RequestLimits;
  /** The address or network whose failed authentications are counted; null where it is not known. */
  client: string | null;
  /** Is called once the credential has proved to be genuine, before the request may be refused for anything else. */
  onIdentified: (identified: Identified) => void;
}

/**
 * Identifies the caller of a request, with one query. Refusals come in this order: an address with too many failures, no
 * credential, two that differ, a bad OAuth token, a malformed key, an unknown id or wrong secret, the other environment's
 * prefix, a key that was revoked or has expired, too many requests, then those of `accessFor`.
 * @throws {ApiError} with the code of the first of these that applies
 */
export function authenticate(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  sender: Sender,
  verifyToken: TokenVerifier = noTokens,
): Promise<Access> {
  return sender.limits.attempt(em, sender.client, () => identify(em, vault, headers, sender, verifyToken));
}

/**
 * Reports the caller's allowance, refuses a caller that has none left, and gives its access. The look-up has counted the
 * request.
 * @throws {ApiError} `rate_limit_exceeded`, then those of `accessFor`
 */
function admit<C extends AccessCaller>(
  { limits, onIdentified }: Sender,
  caller: C,
  { holder, granted, window }: { holder: Holder; granted: readonly string[]; window: WindowCount },
): Access<C> {
  const limit = limits.limitFor(holder.requests_per_minute);
  const { allowance, refused } = limits.allowanceAfter(window, limit);
  onIdentified({ allowance, apiVersion: caller.apiVersion });
  if (refused) throw refused;
  return accessFor(caller, holder, granted);
}

async function identify(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  sender: Sender,
  verifyToken: TokenVerifier,
): Promise<Access> {
  const [credential, ...others] = credentialsIn(headers);
  if (!credential) throw new ApiError("api_key_missing");
  const { token, bearer } = credential;
  if (others.some((other) => other.token !== token)) {
    throw new ApiError("api_key_invalid", "The request carries two different credentials; send one.");
  }
  if (bearer && looksLikeToken(token)) {
    const { caller, ...verified } = await verifyToken(em, token, sender);
    return admit(sender, caller, verified);
  }

  const parsed = parseKey(token);
  if (!parsed) throw new ApiError("api_key_malformed");
  return identifyByKey(em, vault, parsed, sender);
}

async function identifyByKey(em: EntityManager, vault: Vault, key: ParsedKey, sender: Sender): Promise<Access> {
  // A process that started without Postgres gets the key of its hashes with its first connection.
  if (!vault.canHash()) await em.fork().execute("select 1");
  const secretHash = hashSecret(vault, key.secret);
  const found = await sender.limits.find(em, sender.client, keyLookup(em, key.publicId, secretHash));
  const matches = equalConstantTime(found?.row.secret_hash ?? NO_HASH, secretHash);
  if (!found || !matches) throw new ApiError("api_key_invalid", "No API key matches.");
  const { row, window } = found;
  if (row.environment !== key.environment) throw new ApiError("api_key_environment_mismatch");
  refuseEnded(row);
  return admit(sender, keyOf(row), { holder: row, granted: row.granted_scopes, window: window(row.id) });
}
