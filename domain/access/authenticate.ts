import type { EntityManager } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import { awaitHashKey } from "../secrets/admission.ts";
import { equalConstantTime, type Vault } from "../secrets/crypto.ts";
import { type Access, type AccessKey, type AccessToken, accessFor, type Caller, type MemberFacts } from "./access.ts";
import { keyLookup, keyOf, refuseEnded } from "./key-lookup.ts";
import { hashSecret, KEY_PREFIX, parseKey } from "./keys.ts";
import type { Allowance, CountedRequest, RequestLimits } from "./request-limit.ts";

/** The access of a request, and the requests that its caller has left. */
export interface Admitted extends Access {
  allowance: Allowance;
}

/** Every value of every header, as `IncomingMessage.headersDistinct` gives them, so that a second value is noticed. */
export type HeaderValues = NodeJS.Dict<string[]>;

/** A caller whose credential is good, and its request. */
interface Identified<C extends Caller> extends CountedRequest {
  caller: C;
  holder: MemberFacts;
  /** Scopes as minted, or as the token claims them. */
  granted: readonly string[];
}

/**
 * Verifies an OAuth token and counts the request of its client, with one query.
 * @throws {ApiError} `invalid_token`; `service_unavailable` when the issuer's keys cannot be read; as `RequestLimits.findAndCount`
 */
export type TokenVerifier = (
  em: EntityManager,
  token: string,
  origin: Pick<RequestOrigin, "limits" | "clientAddress">,
) => Promise<Identified<AccessToken>>;

const BEARER = /^bearer(?: +(.*))?$/i;

interface Credential {
  token: string;
  bearer: boolean;
}

function credentialsIn(headers: HeaderValues): Credential[] {
  const keys = (headers["x-api-key"] ?? []).map((token) => ({ token: token.trim(), bearer: false }));
  const bearers = (headers["authorization"] ?? []).flatMap((value) => {
    const match = BEARER.exec(value.trim());
    return match ? [{ token: (match[1] ?? "").trim(), bearer: true }] : [];
  });
  return [...bearers, ...keys].filter(({ token }) => token !== "");
}

/** A text with two dots that is no API key can only be meant as an OAuth token. */
const looksLikeToken = (text: string): boolean => !text.startsWith(KEY_PREFIX) && text.split(".").length === 3;

/** The facts that every answer to a caller shows, also when the request is refused. */
export interface CallerSummary {
  allowance: Allowance;
  /** The version for requests that name none. */
  apiVersion: string;
}

export interface RequestOrigin {
  limits: RequestLimits;
  /** An IPv4 address or an IPv6 network of 64 bits, whose failures are counted; null where it is not known. */
  clientAddress: string | null;
  /** Is called once the credential has proved to be genuine, before the request may be refused for anything else. */
  onCallerKnown: (identified: CallerSummary) => void;
}

/** The key of a credential, with the count of its request, by one query. */
async function verifyKey(
  em: EntityManager,
  vault: Vault,
  token: string,
  { limits, clientAddress }: Pick<RequestOrigin, "limits" | "clientAddress">,
): Promise<Identified<AccessKey>> {
  const key = parseKey(token);
  if (!key) throw new ApiError("api_key_malformed");
  await awaitHashKey(em, vault);
  const values = { publicId: key.publicId, secretHash: hashSecret(vault, key.secret) };
  const found = await limits.findAndCount(em, { clientAddress, credential: token }, keyLookup, values);
  if (!found || !equalConstantTime(found.row.secret_hash, values.secretHash))
    throw new ApiError("api_key_invalid", "No API key matches.");
  const { row, ...counted } = found;
  if (row.environment !== key.environment) throw new ApiError("api_key_environment_mismatch");
  refuseEnded(row);
  return { caller: keyOf(row), holder: row, granted: row.granted_scopes, ...counted };
}

/**
 * Identifies the caller of a request, with one query.
 * @throws {ApiError} in this order: for too many failures of the address, no credential, two that differ, a bad OAuth token or
 *   a malformed key, an unknown one, the other environment's prefix, one that has ended, too many requests; as `accessFor`
 */
export function authenticate(
  em: EntityManager,
  vault: Vault,
  headers: HeaderValues,
  { limits, clientAddress: address, onCallerKnown }: RequestOrigin,
  verifyToken: TokenVerifier,
): Promise<Admitted> {
  const [credential, ...others] = credentialsIn(headers);
  const identify = async (clientAddress: string | null): Promise<Admitted> => {
    if (!credential) throw new ApiError("api_key_missing");
    const { token, bearer } = credential;
    if (others.some((other) => other.token !== token)) {
      throw new ApiError("api_key_invalid", "The request carries two different credentials; send one.");
    }
    const { caller, holder, granted, allowance, refused } =
      bearer && looksLikeToken(token)
        ? await verifyToken(em, token, { limits, clientAddress })
        : await verifyKey(em, vault, token, { limits, clientAddress });
    onCallerKnown({ allowance, apiVersion: caller.apiVersion });
    if (refused) throw refused;
    return { ...accessFor(caller, holder, granted), allowance };
  };
  return limits.limitFailures(em, address, identify, credential?.token);
}
