import { Router } from "express";
import type { Env } from "../../config/env.ts";
import { serveKept } from "../kept-answer.ts";
import { ASSETS } from "./assets.ts";
import { factsOf } from "./facts.ts";
import { GUIDES, guidesAsMarkdown, LLMS_PATH, REFERENCE, renderGuide } from "./guides.ts";

const NOTHING_ELSE = ["base-uri 'none'", "form-action 'none'", "frame-ancestors 'none'"];
/** A guide loads its style sheet and its icon, and runs nothing. */
const GUIDE_POLICY = ["default-src 'none'", "style-src 'self'", "img-src 'self'", ...NOTHING_ELSE].join("; ");
/**
 * The reference also runs the renderer's script and calls the API, both of this origin. The renderer's style sheet holds
 * its arrows as `data:` images.
 */
const REFERENCE_POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "connect-src 'self'",
  ...NOTHING_ELSE,
].join("; ");

/**
 * The documentation for developers of clients: the interactive reference at `/docs`, guides below it, and the assets of
 * both. Pages are rendered when they are first asked for and kept, compressed: less than a megabyte in all.
 * @param basePath of the REST API
 */
export function docsRouter(env: Env, basePath: string): Router {
  const router = Router({ caseSensitive: true });
  for (const guide of [REFERENCE, ...GUIDES]) {
    const headers = {
      "Content-Type": "text/html; charset=utf-8",
      "Content-Security-Policy": guide === REFERENCE ? REFERENCE_POLICY : GUIDE_POLICY,
      // Cached, and asked for each time whether it has changed.
      "Cache-Control": "no-cache",
    };
    const read = async () => Buffer.from(renderGuide(guide, factsOf(env, basePath)));
    router.get(guide.path, serveKept({ headers, read }));
  }
  const read = async () => Buffer.from(guidesAsMarkdown(factsOf(env, basePath)));
  const headers = { "Content-Type": "text/plain; charset=utf-8", "Cache-Control": "no-cache" };
  router.get(LLMS_PATH, serveKept({ headers, read }));
  for (const { path, type, read } of Object.values(ASSETS)) {
    const headers = { "Content-Type": type, "Cache-Control": "public, max-age=31536000, immutable" };
    router.get(path, serveKept({ headers, read }));
  }
  return router;
}
