import { Router } from "express";
import { UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import type { Deps } from "../deps.ts";
import { METADATA_PATH, METADATA_ROOT } from "../rest/envelope.ts";
import { respond } from "../rest/http.ts";
import { resourceMetadata } from "./resource-metadata.ts";

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

  const metadata = json(200, resourceMetadata(env));
  router.get([METADATA_PATH, METADATA_ROOT], (_req, res) => respond(res, metadata));

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
