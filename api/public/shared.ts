import { readFileSync } from "node:fs";
import express, { type Response } from "express";
import { Liquid } from "liquidjs";
import type { EntityManager, MikroORM } from "../../db/orm.ts";
import { byOthers, claimFor } from "../../db/pool.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import type { Words } from "../../domain/languages/en.ts";
import { wordsOf } from "../../domain/languages/words.ts";
import { escapeHtml } from "../../domain/mail/template.ts";
import { awaitHashKey } from "../../domain/secrets/admission.ts";
import type { Vault } from "../../domain/secrets/crypto.ts";
import { type ReferencedKind, readReference } from "../../domain/secrets/reference.ts";
import type { LinkTeam } from "../../domain/teams/brand.ts";
import { localsOf } from "../rest/http.ts";
import { Turns } from "../rest/turns.ts";
import { iconOf, noticePage, type Page, renderPage } from "./page.ts";

/** Reads a form as text. No mail program compresses one, and anyone may send one. */
export const readForm = express.text({ type: () => true, limit: "16kb", inflate: false });

const liquid = new Liquid({ outputEscape: "escape" });
export const readAsset = (name: string): string => readFileSync(`${import.meta.dirname}/${name}`, "utf8");
/** A document of this folder whose values are escaped, for HTML and XML. */
export function templateOf(name: string): (values: object) => string {
  const template = liquid.parse(readAsset(name));
  return (values) => liquid.renderSync(template, values);
}

/** Mails of a team that are composed for readers at once: its sends wait for the same thread. */
export const MAILS = new Turns(2);

/** In the language of the team that the link has named. */
export const wordsFor = (res: Response): Words => wordsOf(localsOf(res).look?.language ?? "en");

/** @param own headers in place of those of a page that is not stored or indexed */
export function show(res: Response, page: Page, status = 200, own: Record<string, string> = {}): void {
  const { html, headers } = renderPage(page, localsOf(res).look);
  res
    .status(status)
    .set({ ...headers, ...own })
    .send(html);
}

/** The HTML of a mail is the team's own: it runs nothing, and acts on nothing but its own page. */
export const mailPolicy = (...own: string[]): string =>
  ["default-src 'none'", "style-src 'unsafe-inline'", "base-uri 'none'", "form-action 'none'", ...own].join(";");

/** Its links may lead anywhere, also in a new window. */
const MAIL_POLICY = mailPolicy(
  "sandbox allow-popups allow-popups-to-escape-sandbox",
  "img-src http: https: data:",
  "frame-ancestors 'none'",
);

/** Shows a mail as a page of its own, below some HTML that is ours. The elements before it stand for those that a mail may lack; a browser merges them. */
export function showMail(
  res: Response,
  { subject, above = "", html }: { subject: string; above?: string; html: string },
  own: Record<string, string>,
): void {
  // A sandboxed page has no origin that a cluster could be keyed by, and browsers may refuse one with a policy for its opener.
  for (const name of ["Origin-Agent-Cluster", "Cross-Origin-Opener-Policy"]) res.removeHeader(name);
  res.set({ "Content-Security-Policy": MAIL_POLICY, "Referrer-Policy": "no-referrer", ...own });
  res.type("html").send(`<!doctype html>
<html lang="${localsOf(res).look?.language ?? "en"}">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
${iconOf(localsOf(res).look)}<title>${escapeHtml(subject)}</title>
${above}${html}`);
}

export const refuse = (res: Response, status = 404): void => show(res, noticePage(wordsFor(res).broken), status);

export const statementsBy = (orm: MikroORM, vault: Vault) => ({
  /**
   * @param id of a signed link: it stands for the team until that is read
   * @param isKept a button was pressed: the program that posted it may not wait for the answer
   */
  async claimForTeam<Team extends LinkTeam>(
    res: Response,
    id: string,
    readTeam: (em: EntityManager) => Promise<Team | undefined>,
    isKept = false,
  ): Promise<Team | undefined> {
    claimFor(id, { isKept });
    const team = await readTeam(orm.em.fork());
    if (!team) return undefined;
    claimFor(byOthers(team.teamId), { isKept });
    localsOf(res).look = team;
    return team;
  },
  /** @returns the record with a signed reference, undefined for another; the request is its team's then */
  async claimForReference<Row extends LinkTeam>(
    res: Response,
    kind: ReferencedKind,
    reference: string,
    read: (em: EntityManager, id: string) => Promise<Row | undefined>,
    isKept = false,
  ): Promise<Row | undefined> {
    await awaitHashKey(orm.em, vault);
    const id = readReference(vault, kind, reference);
    return id === undefined ? undefined : this.claimForTeam(res, id, (em) => read(em, id), isKept);
  },
  /** A person presses a button once: what they ask for waits for the locks of others. */
  patiently: <T>(act: (em: EntityManager) => Promise<T>): Promise<T> =>
    transaction(orm.em, async (em) => {
      await limitStatements(em, PATIENT_MS);
      return act(em);
    }),
});
