import { Router } from "express";
import { UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import type { Deps } from "../deps.ts";
import { METADATA_PATH, METADATA_ROOT } from "../rest/envelope.ts";
import { send } from "../rest/http.ts";
import { ERRORS_PAGE } from "./errors-page.ts";
import { resourceMetadata } from "./resource-metadata.ts";
import { WEBHOOKS_PAGE } from "./webhooks-page.ts";

const json = (status: number, value: unknown, headers: Record<string, string> = {}) => ({
  status,
  headers,
  body: JSON.stringify(value),
});

/**
 * `/healthz`: the process runs. `/readyz`: its dependencies are reachable, or 503 naming those that are not.
 * `/docs/errors`: the page behind the `doc_url` of every error. `/docs/webhooks`: the page behind the `User-Agent` of
 * deliveries. The well-known paths: which OAuth tokens the API takes.
 */
export function systemRouter({ readiness, env }: Pick<Deps, "readiness" | "env">): Router {
  const router = Router();

  router.get("/healthz", (_req, res) => send(res, json(200, { status: "ok" })));

  router.get("/docs/errors", (_req, res) => {
    res.set("Content-Type", "text/html; charset=utf-8").send(ERRORS_PAGE);
  });

  router.get("/docs/webhooks", (_req, res) => {
    res.set("Content-Type", "text/html; charset=utf-8").send(WEBHOOKS_PAGE);
  });

  const metadata = json(200, resourceMetadata(env));
  router.get([METADATA_PATH, METADATA_ROOT], (_req, res) => send(res, metadata));

  router.get("/readyz", async (_req, res) => {
    const { ready, ...dependencies } = await readiness.read();
    const report = { status: ready ? "ready" : "unavailable", ...dependencies };
    send(res, ready ? json(200, report) : json(503, report, { "Retry-After": String(UNAVAILABLE_RETRY_SECONDS) }));
  });
  return router;
}
