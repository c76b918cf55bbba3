import { hash } from "node:crypto";
import type { Request, Response, Router } from "express";
import type { Words } from "../../domain/languages/en.ts";
import { dateOf } from "../../domain/languages/words.ts";
import { cutInboxText, excerptOf } from "../../domain/mail/inbox-text.ts";
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
import { FONT_FAMILIES, textOn } from "../../lib/mail-style.ts";
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
    mainLink: form === null ? undefined : { url: `/f/${form}`, text: words.confirm.title(listName) },
    links: issues.map(({ url, title, text, at }) => ({ url, text: title, note: text, date: dateOf(words, at) })),
    feed: { url: `${url}/feed`, text: words.web.feed },
  };
}

/** Above a newsletter: its subject, whose it is, of which day, and where others are. A mail may have any style: this has its own. */
function headOf(
  words: Words,
  { teamName, listName, at, ...look }: WebNewsletter,
  { subject, text, ...urls }: Record<"subject" | "text", string> & Record<"archive" | "form", string | null>,
): string {
  const color = textOn(colorOf(look));
  const style = `margin:0;padding:12px;background:${colorOf(look)};color:${color};font:14px/1.5 ${FONT_FAMILIES[look.font]};text-align:center`;
  const link = (url: string | null, text: string) =>
    url === null ? [] : [`<a href="${escapeHtml(url)}" style="color:${color}">${escapeHtml(text)}</a>`];
  const parts = [
    `<strong>${escapeHtml(teamName)}</strong>`,
    escapeHtml(dateOf(words, at)),
    ...link(urls.archive, words.web.issues),
    ...link(urls.form, words.confirm.title(listName ?? teamName)),
  ];
  const meta = (name: string, text: string) => text && `<meta property="og:${name}" content="${escapeHtml(text)}">\n`;
  const heading = `<h1 style="margin:0;font-size:18px">${escapeHtml(subject)}</h1>`;
  return `${meta("site_name", teamName)}${meta("title", subject)}${meta("description", text)}<div style="${escapeHtml(style)}">${heading}${parts.join(" · ")}</div>\n`;
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
    const above = headOf(wordsFor(res), found, {
      ...{ subject: mail.subject.trim(), text: cutInboxText(excerptOf(mail.html)) },
      archive: listId && archiveUrl(vault, env.PUBLIC_URL, listId),
      form: form && `${env.PUBLIC_URL}/f/${form}`,
    });
    showMail(res, { ...mail, above }, OF_THE_WEB);
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
