import type { OAuthGrant } from "../../domain/account-tokens.ts";
import { unique } from "./factories.ts";
import { openReceiver } from "./receiver.ts";

/** A provider's token endpoint, which gives each request another token unless a test says otherwise. */
export interface TokenEndpoint {
  grant: OAuthGrant;
  /** Forms that were posted so far. */
  requests: URLSearchParams[];
  /** Tokens that it gave, the last one last. */
  issued: string[];
  /** Fields of an answer with a token that differ. */
  changes: Record<string, unknown>;
  /** An answer without a token. */
  failure: { status: number; error: string } | undefined;
  /** Answers wait for it. */
  heldUntil: Promise<void>;
  close(): Promise<void>;
}

/** Opens one at an address that the stack's processes may reach. */
export async function openTokenEndpoint(): Promise<TokenEndpoint> {
  const receiver = await openReceiver(async ({ body }, response) => {
    endpoint.requests.push(new URLSearchParams(body));
    await endpoint.heldUntil;
    response.setHeader("content-type", "application/json");
    const { failure } = endpoint;
    if (failure) {
      response.writeHead(failure.status).end(JSON.stringify({ error: failure.error }));
      return;
    }
    const token = unique("access-token");
    endpoint.issued.push(token);
    response.end(JSON.stringify({ access_token: token, token_type: "Bearer", expires_in: 3_600, ...endpoint.changes }));
  });
  const endpoint: TokenEndpoint = {
    grant: {
      tokenUrl: `${receiver.origin}/token`,
      clientId: "a-client",
      clientSecret: unique("client-secret"),
      refreshToken: unique("refresh-token"),
    },
    requests: [],
    issued: [],
    changes: {},
    failure: undefined,
    heldUntil: Promise.resolve(),
    close: () => receiver.close(),
  };
  return endpoint;
}
