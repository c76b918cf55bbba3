import { createServer, type ServerResponse } from "node:http";
import { exportJWK, generateKeyPair, type JWK, type JWTPayload, SignJWT } from "jose";
import type { Env } from "../../config/env.ts";
import { type TestTeam, unique } from "../support/factories.ts";
import { listenLocally } from "../support/listen-locally.ts";
import { stack } from "../support/stack.ts";

export interface IssuerKey {
  kid: string;
  alg: string;
  privateKey: Parameters<SignJWT["sign"]>[0];
  /** As it stands in the key set. */
  publicJwk: JWK;
}

export async function makeIssuerKey(alg = "RS256"): Promise<IssuerKey> {
  const kid = unique("kid");
  const { privateKey, publicKey } = await generateKeyPair(alg, { extractable: true });
  return { kid, alg, privateKey, publicJwk: { ...(await exportJWK(publicKey)), kid, alg, use: "sig" } };
}

export type KeySetAnswer = (response: ServerResponse) => void;

/** An authorization server as far as the API knows it: a key set behind a URL. Its first key signs. */
export interface TestIssuer {
  /** Settings of an API that takes its tokens. */
  settings: Pick<Env, "OAUTH_ISSUER" | "OAUTH_JWKS_URL">;
  keys: IssuerKey[];
  /** Requests for the key set so far. */
  loads: number;
  /** The answer to a request for the key set; the keys unless a test replaces it. */
  answer: KeySetAnswer;
  close(): Promise<void>;
}

export async function openIssuer(...keys: IssuerKey[]): Promise<TestIssuer> {
  const server = createServer((_request, response) => {
    issuer.loads++;
    issuer.answer(response);
  });
  const origin = `http://127.0.0.1:${await listenLocally(server)}`;
  const issuer: TestIssuer = {
    settings: { OAUTH_ISSUER: origin, OAUTH_JWKS_URL: `${origin}/jwks.json` },
    keys: keys.length > 0 ? keys : [await makeIssuerKey()],
    loads: 0,
    answer: (response) => void response.end(JSON.stringify({ keys: issuer.keys.map(({ publicJwk }) => publicJwk) })),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  return issuer;
}

const nowSeconds = (): number => Math.floor(Date.now() / 1_000);

/** Claims as a test gives them, good or bad; undefined leaves one out. */
export interface TestClaims extends Record<string, unknown> {
  jti?: string | undefined;
}

/** The claims of a good token for the team's member, live, for lists. */
export async function claimsFor(
  { settings }: Pick<TestIssuer, "settings">,
  { team, owner }: Pick<TestTeam, "team" | "owner">,
  changes: TestClaims = {},
): Promise<TestClaims> {
  return {
    iss: settings.OAUTH_ISSUER,
    aud: (await stack()).api,
    iat: nowSeconds(),
    exp: nowSeconds() + 300,
    jti: unique("jti"),
    sub: owner.id,
    team: team.id,
    env: "live",
    scope: "lists:read lists:write",
    client_id: "a-client",
    ...changes,
  };
}

export const signToken = (
  { kid, alg, privateKey }: Pick<IssuerKey, "kid" | "alg" | "privateKey">,
  claims: TestClaims,
  header: { kid?: string; typ?: string; alg?: string } = {},
): Promise<string> =>
  new SignJWT(claims as JWTPayload).setProtectedHeader({ alg, kid, typ: "at+jwt", ...header }).sign(privateKey);

/** Seconds since 1970 that lie this far ahead. */
export const inSeconds = (seconds: number): number => nowSeconds() + seconds;
