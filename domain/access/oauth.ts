import { errors, type JWTVerifyOptions, type JWTVerifyResult, jwtVerify } from "jose";
import { sql } from "kysely";
import { z } from "zod";
import { type EntityManager, kysely } from "../../db/orm.ts";
import { CURRENT_API_VERSION } from "../api-version.ts";
import { ApiError } from "../errors.ts";
import { MAX_ID_LENGTH } from "../ids.ts";
import { type AccessToken, MEMBER_FACTS } from "./access.ts";
import type { TokenVerifier } from "./authenticate.ts";
import { KEY_SET_TIMES, openIssuerKeys } from "./oauth-keys.ts";
import { defineLookup } from "./request-limit.ts";

export interface TokenRules {
  /** Compared with the `iss` claim character by character. */
  issuer: string;
  /** A token names one of them. */
  audience: string[];
  keySetUrl: string;
}

export const MAX_TOKEN_LENGTH = 8_192;

export const MAX_TOKEN_ID_LENGTH = 255;

/** How far the issuer's clock and this one may differ. */
export const CLOCK_TOLERANCE_SECONDS = 30;

/** Signatures by a key that the issuer alone holds. With an HMAC, a verifier's key could sign too. */
const ALGORITHMS = [
  ...["RS256", "RS384", "RS512", "PS256", "PS384", "PS512"],
  ...["ES256", "ES384", "ES512", "EdDSA", "Ed25519"],
];

/** The `typ` header of an access token: as RFC 9068 asks, or as many issuers write it. Other kinds of JWT are refused. */
const TYPES: ReadonlySet<string> = new Set(["at+jwt", "jwt"]);

const printable = (maxLength: number) =>
  z
    .string()
    .max(maxLength)
    .regex(/^[\x20-\x7e]+$/);

const claimsOf = z.object({
  sub: printable(MAX_ID_LENGTH),
  team: printable(MAX_ID_LENGTH),
  env: z.enum(["live", "test"]),
  scope: z.string().transform((text) => [...new Set(text.split(" "))]),
  client_id: printable(255),
  // Without it the token could not be revoked.
  jti: printable(MAX_TOKEN_ID_LENGTH),
});
type Claims = z.infer<typeof claimsOf>;
type HolderValues = Pick<Claims, "sub" | "jti" | "team"> & { callerId: string };

/** @param message is sent in `WWW-Authenticate` too: it may name a claim and must quote nothing of the token */
const tokenRefusal = (message: string): ApiError => new ApiError("invalid_token", message);

const claimRefusal = (name: string): ApiError =>
  tokenRefusal(`The OAuth token's ${name} is missing or not as this API takes it.`);

/** The refusal of a token that jose does not accept; any other failure is thrown on. */
function joseRefusal(error: unknown): ApiError {
  if (error instanceof errors.JWTExpired) return tokenRefusal("The OAuth token has expired.");
  if (error instanceof errors.JWTClaimValidationFailed) return claimRefusal(error.claim);
  if (error instanceof errors.JOSEError) {
    return tokenRefusal("The OAuth token is malformed, or no key of its issuer has signed it.");
  }
  throw error;
}

function readClaims({ protectedHeader: { typ }, payload }: JWTVerifyResult): Claims {
  if (typ !== undefined && !TYPES.has(typ.toLowerCase().replace(/^application\//, ""))) throw claimRefusal("typ");
  const { success, data, error } = claimsOf.safeParse(payload);
  if (!success) throw claimRefusal(String(error.issues[0]?.path[0]));
  return data;
}

/** The member whom a token acts for and its team, and whether the token is revoked. */
const holderOf = (em: EntityManager, { sub, jti }: Pick<Claims, "sub" | "jti">) =>
  kysely(em)
    .selectFrom("members as member")
    .innerJoin("teams as team", "team.id", "member.team_id")
    .select((from) => [
      ...MEMBER_FACTS,
      from.exists(from.selectFrom("revoked_tokens").select(sql.lit(1).as("one")).where("jti", "=", jti)).as("revoked"),
    ])
    .where("member.id", "=", sub);

/** The look-up of each request with a token; it counts the request of a client whose token is good. */
const holderLookup = defineLookup({
  query: (em, { jti, sub }: HolderValues) => holderOf(em, { jti, sub }),
  callerId: ({ callerId }) => sql`${callerId}::text`,
  isGood: ({ team }) => sql`team_id = ${team} and not revoked`,
});

function callerOf({ sub, team, env, client_id, jti }: Claims): AccessToken {
  const keyId = `oauth_${client_id}`;
  return {
    kind: "oauth_token",
    id: `${team}/${keyId}`,
    tokenId: jti,
    keyId,
    environment: env === "live" ? "LIVE" : "TEST",
    memberId: sub,
    lineageId: keyId,
    apiVersion: CURRENT_API_VERSION,
  };
}

const noTokens: TokenVerifier = async () => {
  throw tokenRefusal("This service takes no OAuth tokens; send an API key.");
};

/**
 * Verifies tokens of one issuer. Refusals come in this order: length, signature, issuer, audience, times, `typ`, other
 * claims, a member who is not the team's, revoked.
 * @param rules without them every token is refused
 */
export function openTokenVerifier(rules: TokenRules | undefined, times = KEY_SET_TIMES): TokenVerifier {
  if (!rules) return noTokens;
  const findKey = openIssuerKeys(new URL(rules.keySetUrl), times);
  const options: JWTVerifyOptions = {
    algorithms: ALGORITHMS,
    issuer: rules.issuer,
    audience: rules.audience,
    requiredClaims: ["exp"],
    clockTolerance: CLOCK_TOLERANCE_SECONDS,
  };
  const verify = (token: string) =>
    jwtVerify(token, findKey, options).catch((error) => {
      throw joseRefusal(error);
    });

  return async (em, token, { limits, clientAddress }) => {
    if (token.length > MAX_TOKEN_LENGTH)
      throw tokenRefusal(`An OAuth token has at most ${MAX_TOKEN_LENGTH} characters.`);
    const claims = readClaims(await verify(token));
    const caller = callerOf(claims);
    const { sub, jti, team } = claims;
    const values = { sub, jti, team, callerId: caller.id };
    const found = await limits.findAndCount(em, { clientAddress, credential: token }, holderLookup, values);
    if (found?.row.team_id !== team) throw tokenRefusal("The OAuth token names no member of its team.");
    const { row: holder, ...counted } = found;
    if (holder.revoked) throw tokenRefusal("The OAuth token is revoked.");
    return { caller, holder, granted: claims.scope, ...counted };
  };
}

export interface Revocation {
  tokenId: string;
  /** When the token expires: the revocation is deleted after that. None: it is kept for good. */
  expiresAt: Date | null;
}

/** Refuses a token from now on. A second revocation of the same token sets its expiry anew. */
export async function revokeToken(em: EntityManager, { tokenId, expiresAt }: Revocation): Promise<void> {
  const values = { expires_at: expiresAt?.toISOString() ?? null };
  await kysely(em)
    .insertInto("revoked_tokens")
    .values({ jti: tokenId, ...values })
    .onConflict((conflict) => conflict.column("jti").doUpdateSet(values))
    .execute();
}
