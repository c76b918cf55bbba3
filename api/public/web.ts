import { hash } from "node:crypto";
import type { Request, Response, Router } from "express";
import type { Words } from "../../domain/languages/en.ts";
import { dateOf } from "../../domain/languages/words.ts";
import { besideCard } from "../../domain/mail/blocks/compile.ts";
import { cutInboxText, excerptOf } from "../../domain/mail/inbox-text.ts";
import type { ShownMessage } from "../../domain/mail/message.ts";
import { escapeHtml } from "../../domain/mail/template.ts";
import {
  type Archive,
  archiveUrl,
  findArchive,
  type Issue,
  newsletterUrl,
  readIssues,
  readWebNewsletter,
  showNewsletter,
  type WebNewsletter,
} from "../../domain/sends/web-pages.ts";
import { textOn } from "../../lib/mail-style.ts";
import type { Deps } from "../deps.ts";
import { localsOf } from "../rest/http.ts";
import { colorOf, noticePage, type Page } from "./page.ts";
import { MAILS, refuse, show, showMail, statementsBy, templateOf, wordsFor } from "./shared.ts";

/** A page that was withdrawn is gone from caches in so long. */
const OF_THE_WEB = { "Cache-Control": "public, max-age=300", "X-Robots-Tag": "all" };

interface ShownArchive extends Archive {
  url: string;
  issues: readonly Issue[];
  updatedAt: string;
}

function archivePage(words: Words, { listName, teamName, url, issues, form }: ShownArchive): Page {
  const intro = form === null ? [] : [words.signUp.intro(listName, teamName)];
  return {
    title: listName,
    paragraphs: issues.length > 0 ? intro : [words.web.empty, ...intro],
    mainLink: form === null ? undefined : { url: `/f/${form}`, text: words.web.subscribe },
    links: issues.map(({ url, title, text, at }) => ({ url, text: title, note: text, date: dateOf(words, at) })),
    feed: { url: `${url}/feed`, text: words.web.feed },
  };
}

/** For programs that show a link to a newsletter: whose it is, its subject, and how it begins. */
function metaOf({ teamName }: WebNewsletter, { subject, html }: ShownMessage): string {
  const texts = { site_name: teamName, title: subject.trim(), description: cutInboxText(excerptOf(html)) };
  return Object.entries(texts)
    .map(([name, text]) => text && `<meta property="og:${name}" content="${escapeHtml(text)}">\n`)
    .join("");
}

type Urls = Record<"archive" | "form", string | null>;

/** Above a newsletter: its subject where it has no title of its own, whose it is, of which day, where others are, and the form by which a reader gets them. */
function barOf(
  words: Words,
  { teamName, at, ...look }: WebNewsletter,
  { subject, html }: ShownMessage,
  urls: Urls,
): string {
  const link = (url: string | null, text: string, style: string) =>
    url === null ? "" : `<a href="${escapeHtml(url)}" style="${style}">${escapeHtml(text)}</a>`;
  const color = colorOf(look);
  const button = `padding:4px 12px;border-radius:6px;background:${color};color:${textOn(color)};text-decoration:none`;
  const parts = [
    `<span style="margin-right:auto"><strong>${escapeHtml(teamName)}</strong> · ${escapeHtml(dateOf(words, at))}</span>`,
    link(urls.archive, words.web.issues, "color:inherit"),
    link(urls.form, words.web.subscribe, button),
  ];
  const title = /<h1[\s>]/i.test(html)
    ? ""
    : `<h1 style="margin:0;width:100%;font-size:18px">${escapeHtml(subject.trim())}</h1>`;
  const style = "display:flex;flex-wrap:wrap;align-items:center;gap:8px 16px;font-size:14px";
  return `${besideCard(html, `<div style="${style}">${title}${parts.join("")}</div>`)}\n`;
}

/** Characters that no document of XML may hold. */
const NOT_XML = /[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\u{10000}-\u{10ffff}]/gu;

/** Adds the pages of newsletters and of the archives of lists: they are the same for each reader. */
export function addWebPages(router: Router, { env, orm, vault }: Pick<Deps, "env" | "orm" | "vault">): void {
  const statements = statementsBy(orm, vault);

  router.get("/n/:newsletter", async (req: Request<{ newsletter: string }>, res) => {
    localsOf(res).route = "/n/{newsletter}";
    const found = await statements.claimForReference(res, "newsletter", req.params.newsletter, readWebNewsletter);
    if (!found) return refuse(res);
    if (!found.isPublic) return show(res, noticePage(wordsFor(res).web.withdrawn), 404);
    const url = newsletterUrl(vault, env.PUBLIC_URL, found.id);
    const mail = await MAILS.during(found.teamId, res, () => showNewsletter(found, url));
    const { listId, form } = found;
    const bar = barOf(wordsFor(res), found, mail, {
      archive: listId && archiveUrl(vault, env.PUBLIC_URL, listId),
      form: form && `${env.PUBLIC_URL}/f/${form}`,
    });
    showMail(res, { ...mail, above: metaOf(found, mail) + bar }, OF_THE_WEB);
  });

  const serve = (path: string, answer: (res: Response, archive: ShownArchive) => void) =>
    router.get(`/a/:list${path}`, async (req: Request<{ list: string }>, res) => {
      localsOf(res).route = `/a/{list}${path}`;
      const archive = await statements.claimForReference(res, "list", req.params.list, findArchive);
      if (!archive) return refuse(res);
      const read = () => readIssues(orm.em.fork(), vault, env.PUBLIC_URL, archive);
      const issues = await MAILS.during(archive.teamId, res, read);
      const url = archiveUrl(vault, env.PUBLIC_URL, archive.listId);
      answer(res, { ...archive, url, issues, updatedAt: issues[0]?.at ?? archive.createdAt });
    });
  const serveXml = (path: string, name: string, type: string) => {
    const fill = templateOf(name);
    serve(path, (res, archive) => {
      const xml = fill(archive).replace(NOT_XML, "");
      // Programs ask for a feed all day.
      const headers = { ETag: `W/"${hash("sha256", xml, "base64url")}"`, "Content-Type": `${type}; charset=utf-8` };
      res.set({ ...OF_THE_WEB, ...headers });
      if (res.req.fresh) res.status(304).end();
      else res.send(xml);
    });
  };
  serve("", (res, archive) => show(res, archivePage(wordsFor(res), archive), 200, OF_THE_WEB));
  serveXml("/feed", "feed.liquid", "application/atom+xml");
  serveXml("/sitemap.xml", "sitemap.liquid", "application/xml");
}
