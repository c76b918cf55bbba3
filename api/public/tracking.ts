import type { RequestHandler, Response } from "express";
import type { EngagementKind } from "../../db/entities/engagement.ts";
import { wordsOf } from "../../domain/languages/words.ts";
import type { MailRef } from "../../domain/mail/links.ts";
import { readClick, readOpen } from "../../domain/tracking/links.ts";
import { sourceOf } from "../../domain/tracking/record.ts";
import { findingOf } from "../../domain/tracking/rules.ts";
import type { Deps } from "../deps.ts";
import { localsOf } from "../rest/http.ts";
import { SECURITY_HEADERS } from "../security-headers.ts";
import { noticePage, renderPage } from "./page.ts";

const PIXEL = Buffer.from("R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7", "base64");
const BROKEN_PAGE = renderPage(noticePage(wordsOf("en").broken));
const GONE_PAGE = Buffer.from(BROKEN_PAGE.html);

/** No answer is stored, so that each open and click comes here. The page that follows learns nothing of the link. */
const HEADERS = {
  ...SECURITY_HEADERS,
  "Cache-Control": "no-store",
  "Referrer-Policy": "no-referrer",
  "X-Robots-Tag": "noindex, nofollow",
  // Mail is read on pages of other sites.
  "Cross-Origin-Resource-Policy": "cross-origin",
};

/** Names and values of headers in turn: in this form Node does not check each of them. */
const listOf = (headers: Record<string, string | number>): readonly (string | number)[] =>
  Object.entries(headers).flat();

const PIXEL_HEAD = listOf({ ...HEADERS, "Content-Type": "image/gif", "Content-Length": PIXEL.length });
const REDIRECT_HEAD = listOf({ ...HEADERS, "Content-Length": 0 });
const GONE_HEAD = listOf({ ...SECURITY_HEADERS, ...BROKEN_PAGE.headers, "Content-Length": GONE_PAGE.length });

/** Paths of a pixel and of a link. A token of ours needs no escape. */
const OPEN_PATH = /^\/o\/([^/?]+)\/?(?:\?|$)/;
const CLICK_PATH = /^\/l\/([^/?]+)(?:\/([^/?]+))?\/?(?:\?|$)/;

/**
 * Serves the pixels and links of tracked mails. The request alone says where a link leads, so both are answered without
 * Postgres. Neither sets a cookie. Of the request are kept its time, the rule that it meets, and until the hit is settled a hash
 * of its source. Thousands of
 * such requests may come in a second: this handler runs before all other routes, and its answers are prepared.
 */
export function trackingHandler({ vault, hits, networks }: Pick<Deps, "vault" | "hits" | "networks">): RequestHandler {
  const answer = (res: Response, status: number, head: readonly (string | number)[], body?: Buffer): void => {
    const list = [...head];
    const { headers } = localsOf(res);
    for (const name in headers) list.push(name, headers[name] ?? "");
    res.writeHead(status, list).end(body);
  };
  const gone = (res: Response) => answer(res, 404, GONE_HEAD, GONE_PAGE);
  /** @param token of the mail, with its signature */
  const note = (
    { method, headers }: Parameters<RequestHandler>[0],
    res: Response,
    token: string,
    hit: MailRef & { kind: EngagementKind; url: string | null },
  ) => {
    const { clientAddress } = localsOf(res);
    const { rule = null, early = false } = findingOf(hit.kind, { method, headers, clientAddress }, networks) ?? {};
    hits.add({ ...hit, at: Date.now(), rule, early, source: sourceOf(token, clientAddress) });
  };

  return (req, res, next) => {
    const { method, url } = req;
    if (method !== "GET" && method !== "HEAD") return next();
    const open = OPEN_PATH.exec(url);
    if (open) {
      localsOf(res).route = "/o/{mail}";
      const mail = readOpen(vault, open[1] ?? "");
      if (!mail) return gone(res);
      note(req, res, open[1] ?? "", { ...mail, kind: "opened", url: null });
      return answer(res, 200, PIXEL_HEAD, PIXEL);
    }
    const link = CLICK_PATH.exec(url);
    if (!link) return next();
    localsOf(res).route = "/l/{mail}/{link}";
    const click = readClick(vault, link[1] ?? "", link[2] ?? "");
    if (!click) return gone(res);
    note(req, res, link[1] ?? "", { ...click.mail, kind: "clicked", url: click.url });
    answer(res, 302, [...REDIRECT_HEAD, "Location", click.url]);
  };
}
