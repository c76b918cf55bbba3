import type { OAuthGrant } from "../../domain/accounts/tokens.ts";
import { unique } from "../support/factories.ts";
import { openReceiver } from "../support/receiver.ts";

/** A provider's token endpoint. It issues a new token for each request unless a test says otherwise. */
export interface TokenEndpoint {
  grant: OAuthGrant;
  requests: URLSearchParams[];
  /** Issued tokens, the newest last. */
  issued: string[];
  /** Fields that replace those of an answer with a token. */
  changes: Record<string, unknown>;
  /** An answer without a token. */
  failure: { status: number; error: string } | undefined;
  /** Answers are sent once it resolves. */
  heldUntil: Promise<void>;
  close(): Promise<void>;
}

/** Opens a token endpoint at an address that the stack's processes may reach. */
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
