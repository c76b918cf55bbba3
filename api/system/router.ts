import { Router } from "express";
import type { Env } from "../../config/env.ts";
import { TOKEN_SCOPES } from "../../domain/access/scopes.ts";
import { UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import { BASE_PATH, MCP_PATH, resourceUrl } from "../base-path.ts";
import type { Deps } from "../deps.ts";
import { METADATA_ROOT } from "../rest/envelope.ts";
import { respond } from "../rest/http.ts";

/**
 * The document of RFC 9728: which OAuth tokens the API takes. Without an issuer it names none and takes no token by any
 * method; API keys are not OAuth's. MCP has one of its own, since a client compares the resource with the URL that it asked.
 */
function resourceMetadata(
  { OAUTH_ISSUER: issuer, PUBLIC_URL }: Pick<Env, "OAUTH_ISSUER" | "PUBLIC_URL">,
  path: string,
) {
  return {
    resource: resourceUrl(PUBLIC_URL, path),
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

const json = (status: number, value: unknown, headers: Record<string, string> = {}) => ({
  status,
  headers,
  body: JSON.stringify(value),
});

/**
 * `/healthz`: the process runs. `/readyz`: its dependencies are reachable and its loops move, or 503 naming those that
 * are not or do not. The well-known paths: which OAuth tokens the API takes.
 */
export function systemRouter({ readiness, progress, env }: Pick<Deps, "readiness" | "progress" | "env">): Router {
  const router = Router();

  router.get("/healthz", (_req, res) => respond(res, json(200, { status: "ok" })));

  // Some clients look where the API's path is missing.
  for (const [at, path] of [
    ["", BASE_PATH],
    [BASE_PATH, BASE_PATH],
    [MCP_PATH, MCP_PATH],
  ] as const) {
    const metadata = json(200, resourceMetadata(env, path));
    router.get(`${METADATA_ROOT}${at}`, (_req, res) => respond(res, metadata));
  }

  router.get("/readyz", async (_req, res) => {
    const { ready: isAnswered, ...dependencies } = await readiness.read();
    const stalled = progress.stalled();
    const ready = isAnswered && stalled.length === 0;
    const report = {
      status: ready ? "ready" : "unavailable",
      ...dependencies,
      ...(stalled.length > 0 && { stalled }),
    };
    respond(res, ready ? json(200, report) : json(503, report, { "Retry-After": String(UNAVAILABLE_RETRY_SECONDS) }));
  });
  return router;
}
