import type { Env } from "../../config/env.ts";
import { TOKEN_SCOPES } from "../../domain/access/scopes.ts";
import { resourceUrl } from "../base-path.ts";

/**
 * The document of RFC 9728: which OAuth tokens the API takes. Without an issuer it names none and takes no token by any
 * method; API keys are not OAuth's.
 */
export function resourceMetadata({ OAUTH_ISSUER: issuer, PUBLIC_URL }: Pick<Env, "OAUTH_ISSUER" | "PUBLIC_URL">) {
  return {
    resource: resourceUrl(PUBLIC_URL),
    resource_name: "Mailkeel",
    resource_documentation: new URL("/docs", PUBLIC_URL).href,
    ...(issuer === undefined
      ? { bearer_methods_supported: [] }
      : {
          authorization_servers: [issuer],
          bearer_methods_supported: ["header"],
          scopes_supported: TOKEN_SCOPES,
        }),
  };
}
