import { createHash } from "node:crypto";
import { gzipSync } from "node:zlib";
import type { AnyTRPCRouter } from "@trpc/server";
import { Router } from "express";
import type { Env } from "../../config/env.ts";
import { openApiDocument } from "./document.ts";

/** The document as it is sent. */
interface Rendered {
  plain: Buffer;
  gzipped: Buffer;
  etag: string;
}

function render(document: unknown): Rendered {
  const plain = Buffer.from(JSON.stringify(document));
  const digest = createHash("sha256").update(plain).digest("base64url");
  // Weak: the two encodings differ in their bytes.
  return { plain, gzipped: gzipSync(plain), etag: `W/"${digest}"` };
}

/** Serves `/openapi.json`, which is made at its first request and kept. Pages of any origin may read it. */
export function documentRouter(
  routes: AnyTRPCRouter,
  { PUBLIC_URL, OAUTH_ISSUER }: Pick<Env, "PUBLIC_URL" | "OAUTH_ISSUER">,
  basePath: string,
): Router {
  const router = Router();
  let rendered: Rendered | undefined;
  router.get("/openapi.json", (req, res) => {
    rendered ??= render(openApiDocument(routes, PUBLIC_URL, basePath, OAUTH_ISSUER));
    res.set({
      "Content-Type": "application/json; charset=utf-8",
      "Cache-Control": "no-cache",
      ETag: rendered.etag,
      Vary: "Accept-Encoding",
      "Access-Control-Allow-Origin": "*",
    });
    if (req.acceptsEncodings(["gzip", "identity"]) !== "gzip") return void res.send(rendered.plain);
    res.set("Content-Encoding", "gzip").send(rendered.gzipped);
  });
  return router;
}
