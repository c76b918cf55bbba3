import { Router } from "express";
import type { Env } from "../../config/env.ts";
import { type KeptAnswer, serveKept } from "../kept-answer.ts";
import { ASSETS } from "./assets.ts";
import { factsOf } from "./facts.ts";
import { GUIDES, renderGuide } from "./guides.ts";
import { renderLayout } from "./layout.ts";
import { REFERENCE, REFERENCE_CONTENT, REFERENCE_HEAD } from "./reference.ts";

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

const page = (policy: string, render: () => string): KeptAnswer => ({
  headers: {
    "Content-Type": "text/html; charset=utf-8",
    "Content-Security-Policy": policy,
    // Cached, and asked for each time whether it has changed.
    "Cache-Control": "no-cache",
  },
  read: async () => Buffer.from(render()),
});

/**
 * The documentation for developers of clients: the interactive reference at `/docs`, guides below it, and the assets of
 * both. Pages are rendered when they are first asked for and kept, compressed: less than a megabyte in all.
 * @param basePath of the REST API
 */
export function docsRouter(env: Env, basePath: string): Router {
  const router = Router({ caseSensitive: true });
  const pages = [REFERENCE, ...GUIDES];
  const reference = () => renderLayout({ pages, current: REFERENCE, content: REFERENCE_CONTENT, head: REFERENCE_HEAD });
  router.get(REFERENCE.path, serveKept(page(REFERENCE_POLICY, reference)));
  for (const guide of GUIDES) {
    const render = () => {
      const { html, sections } = renderGuide(guide, factsOf(env, basePath));
      return renderLayout({ pages, current: guide, content: html, sections });
    };
    router.get(guide.path, serveKept(page(GUIDE_POLICY, render)));
  }
  for (const { path, type, read } of Object.values(ASSETS)) {
    const headers = { "Content-Type": type, "Cache-Control": "public, max-age=31536000, immutable" };
    router.get(path, serveKept({ headers, read }));
  }
  return router;
}
