import type { AnyTRPCRouter } from "@trpc/server";
import { Router } from "express";
import type { Env } from "../../config/env.ts";
import { serveKept } from "../kept-answer.ts";
import { openApiDocument } from "./document.ts";

const HEADERS = {
  "Content-Type": "application/json; charset=utf-8",
  "Cache-Control": "no-cache",
  "Access-Control-Allow-Origin": "*",
};

/** Serves `/openapi.json`, which is made at its first request and kept. Pages of any origin may read it. */
export function documentRouter(
  routes: AnyTRPCRouter,
  { PUBLIC_URL, OAUTH_ISSUER }: Pick<Env, "PUBLIC_URL" | "OAUTH_ISSUER">,
): Router {
  const read = async () => Buffer.from(JSON.stringify(openApiDocument(routes, PUBLIC_URL, OAUTH_ISSUER)));
  return Router().get("/openapi.json", serveKept({ headers: HEADERS, read }));
}
