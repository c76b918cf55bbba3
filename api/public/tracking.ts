import { type Request, type Response, Router } from "express";
import type { EngagementKind } from "../../db/entities/engagement.ts";
import type { MailRef } from "../../domain/links.ts";
import { automaticCause } from "../../domain/tracking/automatic.ts";
import { readClick, readOpen } from "../../domain/tracking/links.ts";
import type { Deps } from "../deps.ts";
import { localsOf } from "../rest/http.ts";
import { GONE, PAGE_HEADERS, renderPage } from "./page.ts";

/** A GIF of one transparent pixel. */
const PIXEL = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64");

/** No answer is stored, so that each open and click comes here. The page that follows learns nothing of the link. */
const HEADERS = {
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "X-Robots-Tag": "noindex, nofollow",
  // Mail is read on pages of other sites.
  "Cross-Origin-Resource-Policy": "cross-origin",
};

/**
 * Serves the pixels and links of tracked mails. The request alone says where a link leads, so both are answered without
 * Postgres. Neither sets a cookie, and nothing is kept of the request but its time and whether a program made it.
 */
export function trackingRouter({ vault, hits }: Pick<Deps, "vault" | "hits">): Router {
  const router = Router({ caseSensitive: true });
  const gone = (res: Response) => void res.status(404).set(PAGE_HEADERS).send(renderPage(GONE));
  const note = (req: Request, kind: EngagementKind, mail: MailRef, url: string | null) =>
    hits.add({ kind, ...mail, at: Date.now(), cause: automaticCause(kind, req) ?? null, url });

  router.get("/o/:mail", async (req: Request<{ mail: string }>, res) => {
    localsOf(res).route = "/o/{mail}";
    const mail = readOpen(vault, req.params.mail);
    if (!mail) return gone(res);
    await note(req, "opened", mail, null);
    res.set(HEADERS).type("image/gif").send(PIXEL);
  });

  router.get("/l/:mail/:link", async (req: Request<{ mail: string; link: string }>, res) => {
    localsOf(res).route = "/l/{mail}/{link}";
    const click = readClick(vault, req.params.mail, req.params.link);
    if (!click) return gone(res);
    await note(req, "clicked", click.mail, click.url);
    res.status(302).set(HEADERS).set("Location", click.url).end();
  });
  return router;
}
