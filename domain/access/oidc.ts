import * as openid from "openid-client";
import { z } from "zod";
import type { Env } from "../../config/env.ts";
import { ROLES } from "../../db/entities/team.ts";
import { normaliseAddress } from "../address.ts";
import { MAX_NAME_LENGTH } from "../audience/rules.ts";
import { ApiError } from "../errors.ts";

export const CALLBACK_PATH = "/console/sign-in/oidc/callback";
/** For each of the four requests of a sign-in at most: together they end before the deadline of a request. */
const TIMEOUT_MS = 5_000;
const MAX_ANSWER_BYTES = 262_144;

/** Why a sign-in was refused; its words stand on the sign-in page. */
export type SignInProblem = "expired" | "refused" | "unverified" | "unknown" | "bound" | "unavailable";

/** @param reason for the log: a code of the provider or of its library, with no text of an answer */
export class SignInRefusal extends ApiError {
  readonly problem: SignInProblem;
  constructor(problem: SignInProblem, reason: string = problem) {
    super(problem === "unavailable" ? "service_unavailable" : "api_key_invalid", `Sign-in refused: ${reason}`);
    this.problem = problem;
  }
}

/** Of one sign-in: the first two come back with the answer, the last one is sent with its code (PKCE). */
export type SignInSecrets = Record<"state" | "nonce" | "verifier", string>;

/** Failures of the way to the provider, or of the settings. */
const UNAVAILABLE =
  /^(OAUTH_(TIMEOUT|PARSE_ERROR|RESPONSE_IS_NOT_\w+|HTTP_REQUEST_FORBIDDEN|WWW_\w+|MISSING_\w+)|invalid_client|unauthorized_client|server_error)$/;

/** For a failure of the library, of which codes alone are taken: its texts may hold the answer. */
function refusalOf({ error, code, cause, name }: Error & Record<string, unknown>, problem?: "unavailable") {
  const codes = [error, code, (cause as { code?: unknown } | undefined)?.code, name];
  const reason = codes.find((text): text is string => typeof text === "string" && /^\w{1,64}$/.test(text)) ?? "";
  // `fetch` throws a TypeError where nothing was answered.
  const isAway = name === "TypeError" || UNAVAILABLE.test(reason);
  return new SignInRefusal(problem ?? (isAway ? "unavailable" : "refused"), reason);
}

const boundedFetch: openid.CustomFetch = async (url, options) => {
  const { status, headers, body } = await fetch(url, options as RequestInit);
  const chunks: Uint8Array[] = [];
  let bytes = 0;
  for await (const chunk of body ?? []) {
    bytes += chunk.length;
    if (bytes > MAX_ANSWER_BYTES) throw new TypeError("Too long", { cause: { code: "ANSWER_TOO_LONG" } });
    chunks.push(chunk);
  }
  return new Response(bytes === 0 ? null : Buffer.concat(chunks), { status, headers });
};

const subjectOf = z.string().regex(/^[\x20-\x7e]{1,255}$/);
/** An OWNER is made by an OWNER or an operator. */
const CLAIMED_ROLES = ROLES.filter((role) => role !== "OWNER");

/** The provider of the settings, by which members sign in; undefined without one. */
export function openProvider(env: Env, timeoutMs = TIMEOUT_MS) {
  const { OIDC_ISSUER: issuer, OIDC_CLIENT_ID: clientId, OIDC_CLIENT_SECRET: secret, OIDC_ROLE_CLAIM: roleClaim } = env;
  if (issuer === undefined || clientId === undefined || secret === undefined) return undefined;
  const redirectUrl = `${env.PUBLIC_URL}${CALLBACK_PATH}`;

  /** The provider as it describes itself at the moment; so its keys are those of the moment, too. */
  const discover = async (): Promise<openid.Configuration> => {
    const execute = [openid.enableNonRepudiationChecks];
    if (issuer.startsWith("http:")) execute.push(openid.allowInsecureRequests);
    const options = { timeout: timeoutMs / 1_000, execute, [openid.customFetch]: boundedFetch };
    try {
      const config = await openid.discovery(
        new URL(issuer),
        clientId,
        secret,
        openid.ClientSecretBasic(secret),
        options,
      );
      // The library takes some issuers of many organizations.
      if (new URL(config.serverMetadata().issuer).href === new URL(issuer).href) return config;
    } catch (error) {
      throw refusalOf(error as never, "unavailable");
    }
    throw new SignInRefusal("unavailable", "another_issuer");
  };

  /** The claims of the ID token, and for those that it lacks, more of the provider. */
  const readClaims = async (query: string, { state, nonce, verifier }: SignInSecrets) => {
    const config = await discover();
    const checks = { expectedState: state, expectedNonce: nonce, pkceCodeVerifier: verifier };
    const url = new URL(`${redirectUrl}?${query}`);
    try {
      const tokens = await openid.authorizationCodeGrant(config, url, checks);
      const claims: Record<string, unknown> = { ...tokens.claims() };
      const subject = subjectOf.parse(claims["sub"]);
      const isWhole =
        claims["email_verified"] !== undefined && (roleClaim === undefined || claims[roleClaim] !== undefined);
      const hasMore = !isWhole && config.serverMetadata().userinfo_endpoint !== undefined;
      const more = hasMore ? await openid.fetchUserInfo(config, tokens.access_token, subject) : {};
      return { subject, claims, more: more as Record<string, unknown> };
    } catch (error) {
      throw refusalOf(error as never);
    }
  };

  return {
    /** Where the browser asks. @throws {SignInRefusal} `unavailable` */
    async begin({ state, nonce, verifier }: SignInSecrets): Promise<URL> {
      const code_challenge = await openid.calculatePKCECodeChallenge(verifier);
      const asked = { redirect_uri: redirectUrl, scope: "openid email profile", state, nonce };
      const parameters = { ...asked, code_challenge, code_challenge_method: "S256" };
      return openid.buildAuthorizationUrl(await discover(), parameters);
    },
    /** The person of an answer. @param query of the answer @throws {SignInRefusal} */
    async readPerson(query: string, secrets: SignInSecrets) {
      const { subject, claims, more } = await readClaims(query, secrets);
      // An address and the word that it is verified come from one answer.
      const { email: given, email_verified: isVerified } = claims["email_verified"] === undefined ? more : claims;
      const email = typeof given === "string" ? normaliseAddress(given) : undefined;
      if (email === undefined || isVerified !== true) throw new SignInRefusal("unverified");
      const all = { ...more, ...claims };
      const line = String(all["name"] ?? "").replaceAll(/\p{Cc}+/gu, " ");
      const roles = roleClaim === undefined ? [] : [all[roleClaim]].flat();
      const role = CLAIMED_ROLES.find((each) => roles.includes(each));
      return { issuer, subject, email, name: line.trim().slice(0, MAX_NAME_LENGTH) || email, role };
    },
  };
}

export type SignInProvider = NonNullable<ReturnType<typeof openProvider>>;
/** With an address that is verified, and the role for a new member. */
export type ProviderPerson = Awaited<ReturnType<SignInProvider["readPerson"]>>;
