import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { exportJWK, generateKeyPair, type JWK } from "jose";
import Provider, { type Context } from "oidc-provider";
import { CALLBACK_PATH } from "../../domain/access/oidc.ts";
import type { Cookies } from "./console.ts";
import { unique } from "./factories.ts";
import { listenLocally } from "./listen-locally.ts";

/** Claims of a person beside their subject. */
export type PersonClaims = Record<string, unknown>;
export type SigningKey = JWK & { kid: string };

export async function makeSigningKey(): Promise<SigningKey> {
  const { privateKey } = await generateKeyPair("RS256", { extractable: true });
  return { ...(await exportJWK(privateKey)), kid: unique("kid"), alg: "RS256", use: "sig" };
}

/** An OpenID Connect provider on a port of its own, at which a person signs in without a page. */
export interface OidcIssuer {
  origin: string;
  key: SigningKey;
  /** Settings of an API whose members sign in here. */
  settings: Record<"OIDC_ISSUER" | "OIDC_CLIENT_ID" | "OIDC_CLIENT_SECRET" | "OIDC_NAME", string>;
  /** By their subjects. */
  people: Map<string, PersonClaims>;
  /** The subject of the person at the browser. */
  present: string;
  /** Signs with another key from now on, and shows it alone. */
  rotateKey(): Promise<void>;
  /** Answers the requests for a path in the provider's place; the provider does again without one. */
  answers: Map<string, (request: IncomingMessage, response: ServerResponse) => void>;
  close(): Promise<void>;
}

/** @param publicUrl of the API */
export async function openOidcIssuer(publicUrl: string): Promise<OidcIssuer> {
  let provider: Provider;
  const server = createServer((request, response) => {
    const { pathname } = new URL(request.url ?? "", issuer.origin);
    const answer = issuer.answers.get(pathname);
    if (answer) return answer(request, response);
    if (!pathname.startsWith("/present/")) return provider.callback()(request, response);
    void provider.interactionFinished(request, response, { login: { accountId: issuer.present } });
  });
  const origin = `http://127.0.0.1:${await listenLocally(server)}`;
  const client = { client_id: "mailkeel", client_secret: "a-secret-of-the-client" };
  const open = async () => {
    issuer.key = await makeSigningKey();
    provider = new Provider(origin, {
      clients: [{ ...client, redirect_uris: [`${publicUrl}${CALLBACK_PATH}`] }],
      jwks: { keys: [issuer.key] },
      pkce: { required: () => true },
      claims: { email: ["email", "email_verified"], profile: ["name", "roles"] },
      cookies: { keys: ["of a test"] },
      features: { devInteractions: { enabled: false } },
      interactions: { url: (_: Context, { uid }: { uid: string }) => `/present/${uid}` },
      findAccount: (_: Context, accountId: string) => ({
        accountId,
        claims: () => ({ ...issuer.people.get(accountId), sub: accountId }),
      }),
      async loadExistingGrant({ oidc: { client, session } }: Context) {
        const grant = new provider.Grant({ clientId: client.clientId, accountId: session.accountId });
        grant.addOIDCScope("openid email profile");
        await grant.save();
        return grant;
      },
    });
  };
  const issuer: OidcIssuer = {
    origin,
    key: { kid: "" },
    settings: {
      OIDC_ISSUER: origin,
      OIDC_CLIENT_ID: client.client_id,
      OIDC_CLIENT_SECRET: client.client_secret,
      OIDC_NAME: "Example ID",
    },
    people: new Map(),
    present: "",
    rotateKey: open,
    answers: new Map(),
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
  await open();
  return issuer;
}

/** Follows the provider's redirects as a browser of its own. @returns the URL of its answer, which leads back */
export async function askProvider(issuer: OidcIssuer, from: string): Promise<URL> {
  const cookies: Cookies = {};
  let url = new URL(from);
  for (let hops = 0; url.origin === issuer.origin; hops++) {
    if (hops > 10) throw new Error(`the provider leads nowhere: ${url}`);
    const cookie = Object.entries(cookies).map((pair) => pair.join("="));
    const answer = await fetch(url, { redirect: "manual", headers: { cookie: cookie.join("; ") } });
    for (const set of answer.headers.getSetCookie()) {
      const [, name = "", value = ""] = /^([^=]+)=([^;]*)/.exec(set) ?? [];
      cookies[name] = value;
    }
    const location = answer.headers.get("location");
    if (location === null) throw new Error(`the provider answered ${answer.status}: ${await answer.text()}`);
    url = new URL(location, url);
  }
  return url;
}
