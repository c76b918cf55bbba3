import express, { type Response } from "express";
import type { EntityManager, MikroORM } from "../../db/orm.ts";
import { byOthers, claimFor } from "../../db/pool.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import type { Words } from "../../domain/languages/en.ts";
import { wordsOf } from "../../domain/languages/words.ts";
import type { LinkTeam } from "../../domain/teams/brand.ts";
import { localsOf } from "../rest/http.ts";
import { noticePage, type Page, renderPage } from "./page.ts";

/** Reads a form as text. No mail program compresses one, and anyone may send one. */
export const readForm = express.text({ type: () => true, limit: "16kb", inflate: false });

/** In the language of the team that the link has named. */
export const wordsFor = (res: Response): Words => wordsOf(localsOf(res).look?.language ?? "en");

export function show(res: Response, page: Page, status = 200): void {
  const { html, headers } = renderPage(page, localsOf(res).look);
  res.status(status).set(headers).send(html);
}

export const refuse = (res: Response, status = 404): void => show(res, noticePage(wordsFor(res).broken), status);

export const statementsBy = (orm: MikroORM) => ({
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
  /** A person presses a button once: what they ask for waits for the locks of others. */
  patiently: <T>(act: (em: EntityManager) => Promise<T>): Promise<T> =>
    transaction(orm.em, async (em) => {
      await limitStatements(em, PATIENT_MS);
      return act(em);
    }),
});
