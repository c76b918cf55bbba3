import { Router } from "express";
import { UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import type { Deps } from "../deps.ts";
import { send } from "../rest/http.ts";
import { ERRORS_PAGE } from "./errors-page.ts";
import { WEBHOOKS_PAGE } from "./webhooks-page.ts";

/** Shorter than the timeout of a probe. */
const DEADLINE_MS = 2_000;

const json = (status: number, value: unknown, headers: Record<string, string> = {}) => ({
  status,
  headers,
  body: JSON.stringify(value),
});

function within(work: Promise<unknown>): Promise<unknown> {
  const late = new Promise((_resolve, reject) => {
    setTimeout(() => reject(new Error("No answer in time")), DEADLINE_MS).unref();
  });
  return Promise.race([work, late]);
}

/**
 * `/healthz`: the process runs. `/readyz`: its dependencies are reachable, or 503 naming those that are not.
 * `/docs/errors`: the page behind the `doc_url` of every error. `/docs/webhooks`: the page behind the `User-Agent` of
 * deliveries.
 */
export function systemRouter({ orm, temporal, log }: Pick<Deps, "orm" | "temporal" | "log">): Router {
  const router = Router();
  const checks = {
    postgres: () => within(orm.em.fork().execute("select 1")),
    temporal: () => within(temporal.check(DEADLINE_MS)),
  };

  router.get("/healthz", (_req, res) => send(res, json(200, { status: "ok" })));

  router.get("/docs/errors", (_req, res) => {
    res.set("Content-Type", "text/html; charset=utf-8").send(ERRORS_PAGE);
  });

  router.get("/docs/webhooks", (_req, res) => {
    res.set("Content-Type", "text/html; charset=utf-8").send(WEBHOOKS_PAGE);
  });

  router.get("/readyz", async (_req, res) => {
    const results = await Promise.all(
      Object.entries(checks).map(async ([name, check]) => {
        try {
          await check();
          return [name, "ok"] as const;
        } catch (err) {
          log.warn({ err, dependency: name }, "not ready");
          return [name, "unreachable"] as const;
        }
      }),
    );
    const ready = results.every(([, state]) => state === "ok");
    const report = { status: ready ? "ready" : "unavailable", ...Object.fromEntries(results) };
    send(res, ready ? json(200, report) : json(503, report, { "Retry-After": String(UNAVAILABLE_RETRY_SECONDS) }));
  });
  return router;
}
