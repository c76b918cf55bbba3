import { pipeline } from "node:stream/promises";
import express, { type ErrorRequestHandler, type Request, type Response, Router } from "express";
import type { ConsentStatus } from "../../db/entities/audience.ts";
import type { EntityManager } from "../../db/orm.ts";
import { byOthers, claimFor } from "../../db/pool.ts";
import { limitStatements, PATIENT_MS } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import {
  type Confirmation,
  confirmSubscription,
  readConfirmation,
  teamOfConfirmation,
} from "../../domain/audience/confirmations.ts";
import { answerMailConsent, type MailConsent, readMailConsent } from "../../domain/audience/tracking-consents.ts";
import {
  type MailOrigin,
  readOrigin,
  teamOfMail,
  type UnsubscribeScope,
  unsubscribe,
} from "../../domain/audience/unsubscribes.ts";
import { UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import { readImageName } from "../../domain/images/links.ts";
import { readConfirmationToken, readMailToken } from "../../domain/mail/links.ts";
import { awaitHashKey } from "../../domain/secrets/admission.ts";
import type { Deps } from "../deps.ts";
import { beforeDeadline } from "../rest/deadline.ts";
import { toApiError } from "../rest/failures.ts";
import { localsOf } from "../rest/http.ts";
import { Turns } from "../rest/turns.ts";
import { GONE, PAGE_HEADERS, type Page, renderPage, SPENT } from "./page.ts";

const MAX_FORM_BYTES = "16kb";

/** Answers with an image that one client may be reading at once: further requests wait. */
const IMAGES_OF_A_CLIENT = new Turns(64);
/** How long the store may take until it has found an image, and how long a reader may take to read it. */
const STORE_MS = 5_000;
const IMAGE_MS = 120_000;
/** The content of a name never changes, and mail is read on pages of other sites. No browser runs anything of it. */
const IMAGE_HEADERS = {
  "Cache-Control": "public, max-age=31536000, immutable",
  "Content-Security-Policy": "default-src 'none'; sandbox",
  "Cross-Origin-Resource-Policy": "cross-origin",
  "X-Robots-Tag": "noindex, nofollow",
};

/** Whether a mail program unsubscribes for its reader (RFC 8058): the body says so in either form encoding. */
function isOneClick(body: unknown): boolean {
  const text = typeof body === "string" ? body : "";
  const name = text.indexOf("List-Unsubscribe");
  return name >= 0 && text.indexOf("One-Click", name) > name;
}

/** The value of the button by which a form was posted; null for none. */
const buttonOf = (body: unknown): string | null =>
  new URLSearchParams(typeof body === "string" ? body : "").get("scope");

/** The scope of an unsubscribe by a posted form: all mail, unless the button names the lists. */
const scopeOf = (body: unknown): UnsubscribeScope =>
  buttonOf(body) === ("lists" satisfies UnsubscribeScope) ? "lists" : "all";

const namesOf = ({ listNames }: MailOrigin): string => listNames.join(", ");

/** The page behind a mail to a person who was erased. Such a person may be on lists again, with mails of their own. */
const erasedPage = ({ teamName }: Pick<MailOrigin, "teamName">): Page => ({
  title: "Your data was erased",
  paragraphs: [
    `${teamName} no longer knows to which address this mail went.`,
    `If newer mail of ${teamName} comes to you, use the link in that mail.`,
  ],
});

/** @param left what the recipient has left already */
function unsubscribePage(origin: MailOrigin, left: UnsubscribeScope | undefined): Page {
  const { teamName, listNames } = origin;
  const title = `Unsubscribe from ${teamName}`;
  const noMore = `You will get no more mail from ${teamName} at this address.`;
  const lists = listNames.length === 1 ? "list" : "lists";
  const cameBy = `The mail came to you by the ${lists} ${namesOf(origin)} of ${teamName}.`;
  const all = { label: `Unsubscribe from all mail of ${teamName}`, scope: "all" };
  if (left === "all") {
    return { title: "You are already unsubscribed", paragraphs: listNames.length > 0 ? [cameBy, noMore] : [noMore] };
  }
  if (listNames.length === 0) return { title, paragraphs: [noMore], buttons: [{ label: "Unsubscribe" }] };
  if (left === "lists")
    return { ...unsubscribedPage(origin), title: `You have left the ${lists} already`, buttons: [all] };
  return {
    title,
    paragraphs: [
      cameBy,
      `Choose whether you leave the ${lists}, or get no more mail from ${teamName} at this address.`,
    ],
    buttons: [{ label: `Leave ${namesOf(origin)}`, scope: "lists" }, all],
  };
}

/** The values of the buttons, as they are posted. */
const CONSENT_BUTTONS: ReadonlyMap<string | null, ConsentStatus> = new Map([
  ["allow", "GRANTED"],
  ["deny", "DENIED"],
]);

function consentPage(
  { teamName, question, tracked, answer }: MailConsent,
  title = `Opens and clicks of ${teamName}`,
): Page {
  const counted = tracked ? "They are counted for this mail until you say no." : "They are not counted for this mail.";
  const said = {
    GRANTED: `You allowed it on ${answer?.at}.`,
    DENIED: `You did not allow it, on ${answer?.at}: opens and clicks are not counted, also of mail that you have already.`,
    none: `You have not answered yet. ${counted}`,
  }[answer?.status ?? "none"];
  const otherWords = answer?.words && answer.words !== question ? [`You were asked: ${answer.words}`] : [];
  return {
    title,
    paragraphs: [question, said, ...otherWords],
    buttons: [
      { label: "Allow", scope: "allow" },
      { label: "Do not allow", scope: "deny" },
    ],
  };
}

/** @param left the lists that were left; none when the recipient left all mail */
function unsubscribedPage(left: MailOrigin): Page {
  const ofLists = left.listNames.length > 0 ? ` of ${namesOf(left)}` : "";
  return {
    title: "You are unsubscribed",
    paragraphs: [`You will get no more mail${ofLists} from ${left.teamName} at this address.`],
  };
}

function confirmedPage({ listName, teamName, isSuppressed }: Confirmation, title = "You are subscribed"): Page {
  if (!isSuppressed) return { title, paragraphs: [`You will get mail of ${listName} from ${teamName}.`] };
  const held = `You get no mail yet: this address is on the do-not-mail list of ${teamName}. Ask ${teamName} to take it off that list.`;
  return { title: "Your confirmation is recorded", paragraphs: [held] };
}

function show(res: Response, page: Page, status = 200): void {
  res.status(status).set(PAGE_HEADERS).send(renderPage(page));
}

/**
 * Serves the pages behind the links in mails. Opening a page changes nothing, because scanners and previews open links
 * too; the POST of its button does. No page tracks its reader, and no URL or page shows an address.
 */
export function publicRouter({ orm, vault, images }: Pick<Deps, "orm" | "vault" | "images">): Router {
  const router = Router({ caseSensitive: true });
  const refuse = (res: Response, status = 404): void => show(res, GONE, status);
  /**
   * @param id of a signed link: it stands for the team until that is read
   * @param isKept a button was pressed: the program that posted it may not wait for the answer
   */
  async function claimForTeam(
    id: string,
    readTeam: (em: EntityManager) => Promise<string | undefined>,
    isKept = false,
  ): Promise<void> {
    claimFor(id, { isKept });
    const teamId = await readTeam(orm.em.fork());
    if (teamId !== undefined) claimFor(byOthers(teamId), { isKept });
  }
  /** @returns the mail of a signed link, undefined for another; the request is its team's then */
  async function readMail(page: "u" | "t", req: Request<{ token: string }>, res: Response, isKept = false) {
    localsOf(res).route = `/${page}/{token}`;
    const mail = readMailToken(vault, page, req.params.token);
    if (mail) await claimForTeam(mail.sendId, (em) => teamOfMail(em, mail), isKept);
    return mail;
  }
  /** A person presses a button once: what they ask for waits for the locks of others. */
  const patiently = <T>(act: (em: EntityManager) => Promise<T>): Promise<T> =>
    transaction(orm.em, async (em) => {
      await limitStatements(em, PATIENT_MS);
      return act(em);
    });
  // No mail program compresses a form, and anyone may send one.
  const form = express.text({ type: () => true, limit: MAX_FORM_BYTES, inflate: false });

  router.get("/u/:token", async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("u", req, res);
    if (!mail) return refuse(res);
    const origin = await readOrigin(orm.em.fork(), mail);
    if (!origin) return refuse(res);
    if (origin.isErased) return show(res, erasedPage(origin));
    show(res, unsubscribePage(origin, origin.left));
  });

  router.post("/u/:token", form, async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("u", req, res, true);
    if (!mail) return refuse(res);
    const source = isOneClick(req.body) ? "one_click" : "link";
    const scope = scopeOf(req.body);
    const left = await patiently((em) => unsubscribe(em, vault, mail, source, scope));
    if (!left) return refuse(res);
    if (left.isErased) return show(res, erasedPage(left));
    show(res, unsubscribedPage(left));
  });

  router.get("/t/:token", async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("t", req, res);
    if (!mail) return refuse(res);
    const consent = await readMailConsent(orm.em.fork(), mail);
    if (!consent) return refuse(res);
    show(res, consent.isErased ? erasedPage(consent) : consentPage(consent));
  });

  router.post("/t/:token", form, async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("t", req, res, true);
    if (!mail) return refuse(res);
    const status = CONSENT_BUTTONS.get(buttonOf(req.body));
    if (!status) return refuse(res, 400);
    const answered = await patiently((em) => answerMailConsent(em, vault, mail, status));
    if (!answered) return refuse(res);
    show(res, answered.isErased ? erasedPage(answered) : consentPage(answered, "Your answer is recorded"));
  });

  router.get("/c/:token", async (req: Request<{ token: string }>, res) => {
    localsOf(res).route = "/c/{token}";
    const token = readConfirmationToken(vault, req.params.token);
    if (!token) return refuse(res);
    await claimForTeam(token.listId, (em) => teamOfConfirmation(em, token));
    const confirmation = await readConfirmation(orm.em.fork(), token);
    if (!confirmation) return show(res, SPENT, 404);
    if (confirmation.isConfirmed) return show(res, confirmedPage(confirmation, "You are already subscribed"));
    const { listName, teamName } = confirmation;
    show(res, {
      title: `Subscribe to ${listName}`,
      paragraphs: [`${teamName} asks whether you want to get this mail.`],
      buttons: [{ label: "Confirm" }],
    });
  });

  router.post("/c/:token", form, async (req: Request<{ token: string }>, res) => {
    localsOf(res).route = "/c/{token}";
    const token = readConfirmationToken(vault, req.params.token);
    if (!token) return refuse(res);
    await claimForTeam(token.listId, (em) => teamOfConfirmation(em, token), true);
    const confirmed = await patiently((em) => confirmSubscription(em, vault, token));
    if (!confirmed) return show(res, SPENT, 404);
    show(res, confirmedPage(confirmed));
  });

  router.get("/i/:name", async (req: Request<{ name: string }>, res) => {
    const locals = localsOf(res);
    locals.route = "/i/{image}";
    await awaitHashKey(orm.em, vault);
    const image = readImageName(vault, req.params.name);
    if (!image || !images) return refuse(res);
    const head = { ...IMAGE_HEADERS, ETag: `"${image.id}"` };
    if (req.headers["if-none-match"]?.includes(head.ETag)) return void res.status(304).set(head).end();
    await IMAGES_OF_A_CLIENT.take(locals.clientAddress ?? locals.requestId, res);
    const stop = new AbortController();
    const timer = setTimeout(() => stop.abort(), IMAGE_MS);
    try {
      const found = await beforeDeadline(STORE_MS, () => images.get(image.file, stop.signal));
      if (!found) return refuse(res);
      res.set({ ...head, "Content-Type": image.type, "Content-Length": `${found.bytes}` });
      if (req.method !== "HEAD") return await pipeline(found.content, res);
      found.content.destroy();
      res.end();
    } catch (error) {
      stop.abort();
      // The reader has gone or was too slow, or the store has failed in the middle: the answer is cut off.
      if (!res.headersSent) throw error;
    } finally {
      clearTimeout(timer);
    }
  });

  const answerRefusal: ErrorRequestHandler = async (error, _req, res, next) => {
    if (toApiError(error).code === "service_unavailable") {
      res.set("Retry-After", String(UNAVAILABLE_RETRY_SECONDS));
      return show(res, { title: "Please try again in a moment", paragraphs: ["We cannot reach our records."] }, 503);
    }
    // A wrong percent-encoding, or a form that is too large: none of our links and pages sends either.
    const status = error instanceof URIError ? 404 : "status" in Object(error) ? Number(error.status) : 500;
    if (status >= 500) return next(error);
    return refuse(res, status);
  };
  router.use(["/u", "/t", "/c", "/i"], answerRefusal);
  return router;
}
