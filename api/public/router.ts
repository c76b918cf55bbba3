import { pipeline } from "node:stream/promises";
import { type ErrorRequestHandler, type Request, type Response, Router } from "express";
import type { ConsentStatus } from "../../db/entities/audience.ts";
import {
  type Confirmation,
  confirmSubscription,
  idOfWords,
  readConfirmation,
  teamOfConfirmation,
} from "../../domain/audience/confirmations.ts";
import { answerMailConsent, type MailConsent, readMailConsent } from "../../domain/audience/tracking-consents.ts";
import { type Undone, undoUnsubscribe } from "../../domain/audience/undo.ts";
import {
  type MailOrigin,
  readMail as readMailRow,
  readOrigin,
  teamOfMail,
  type UnsubscribeScope,
  unsubscribe,
} from "../../domain/audience/unsubscribes.ts";
import { isPlaceholder } from "../../domain/erasure/erased-addresses.ts";
import { UNAVAILABLE_RETRY_SECONDS } from "../../domain/errors.ts";
import { readImageName } from "../../domain/images/links.ts";
import type { Words } from "../../domain/languages/en.ts";
import { dateOf } from "../../domain/languages/words.ts";
import { type MailPage, readConfirmationToken, readMailToken } from "../../domain/mail/links.ts";
import { awaitHashKey } from "../../domain/secrets/admission.ts";
import { showSentMail } from "../../domain/sends/web-mail.ts";
import type { Deps } from "../deps.ts";
import { beforeDeadline } from "../rest/deadline.ts";
import { linksOf } from "../rest/envelope.ts";
import { localsOf } from "../rest/http.ts";
import { refusalOf } from "../rest/refusal.ts";
import { Turns } from "../rest/turns.ts";
import { addForms } from "./forms.ts";
import { type Button, noticePage, type Page } from "./page.ts";
import { MAILS, readForm, refuse, show, showMail, statementsBy, wordsFor } from "./shared.ts";
import { addWebPages } from "./web.ts";

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

/** Posted by the button that takes an opt-out back. */
const UNDO = "undo";

const namesOf = ({ listNames }: MailOrigin): string => listNames.join(", ");

/** The page behind a mail to a person who was erased. Such a person may be on lists again, with mails of their own. */
const erasedPage = ({ erased }: Words, { teamName }: Pick<MailOrigin, "teamName">): Page => ({
  title: erased.title,
  paragraphs: [erased.unknown(teamName), erased.newer(teamName)],
});

const undoButtons = ({ undo }: Words, { isUndoable }: MailOrigin): Button[] =>
  isUndoable ? [{ label: undo.button, scope: UNDO }] : [];

/** @param left what the recipient has left already */
function unsubscribePage(words: Words, origin: MailOrigin, left: UnsubscribeScope | undefined): Page {
  const { teamName, listNames } = origin;
  const { optOut } = words;
  const lists = namesOf(origin);
  const title = optOut.title(teamName);
  const noMore = optOut.all(teamName);
  const cameBy = listNames.length > 0 ? [optOut.reason(lists, teamName)] : [];
  const all = { label: optOut.buttonAll(teamName), scope: "all" };
  const undo = undoButtons(words, origin);
  if (left === "all") return { title: optOut.already, paragraphs: [...cameBy, noMore], buttons: undo };
  if (listNames.length === 0) return { title, paragraphs: [noMore], buttons: [{ label: optOut.button, isMain: true }] };
  if (left === "lists") {
    const paragraphs = [optOut.some(lists, teamName)];
    return { title: optOut.already, paragraphs, buttons: [{ ...all, isMain: true }, ...undo] };
  }
  const some = { label: optOut.buttonSome(lists), scope: "lists", isMain: true };
  return { title, paragraphs: [...cameBy, optOut.choice], buttons: [some, all] };
}

/** @param left the lists that were left; none when the recipient left all mail */
function unsubscribedPage(words: Words, left: MailOrigin): Page {
  const { done, all, some } = words.optOut;
  const noMore = left.listNames.length > 0 ? some(namesOf(left), left.teamName) : all(left.teamName);
  return { title: done, paragraphs: [noMore], buttons: undoButtons(words, left) };
}

function undonePage({ undo, confirm, confirmation }: Words, { teamName, outcome, asked }: Undone): Page {
  if (outcome === "suppressed") return { title: undo.impossible, paragraphs: [confirm.suppressed(teamName)] };
  if (outcome === "none") return { title: undo.impossible, paragraphs: [undo.late(teamName)] };
  if (asked.length > 0) return { title: confirmation.subject, paragraphs: [undo.asked(asked.join(", "))] };
  return { title: undo.done, paragraphs: [undo.restored(teamName)] };
}

/** The values of the buttons, as they are posted. */
const CONSENT_BUTTONS: ReadonlyMap<string | null, ConsentStatus> = new Map([
  ["allow", "GRANTED"],
  ["deny", "DENIED"],
]);

/** Neither answer is the main one. */
function consentPage(words: Words, { teamName, question, tracked, answer }: MailConsent, isNew = false): Page {
  const { tracking } = words;
  const date = answer ? dateOf(words, answer.at) : "";
  const said = {
    GRANTED: tracking.granted(date),
    DENIED: tracking.denied(date),
    none: tracked ? tracking.countedSoFar : tracking.notCounted,
  }[answer?.status ?? "none"];
  const otherWords = answer?.words && answer.words !== question ? [tracking.asked(answer.words)] : [];
  return {
    title: isNew ? tracking.done : tracking.title(teamName),
    paragraphs: [question, said, ...otherWords],
    buttons: [
      { label: tracking.allow, scope: "allow" },
      { label: tracking.deny, scope: "deny" },
    ],
  };
}

/** Asks for the confirmation. The button names the words above it: those of a later sign-up are asked for anew. */
const confirmPage = ({ confirm, confirmation }: Words, { listName, teamName, agreed }: Confirmation): Page => ({
  title: confirm.title(listName),
  paragraphs: [confirm.question(teamName), ...agreed],
  buttons: [{ label: confirmation.button, scope: idOfWords(agreed), isMain: true }],
});

function confirmedPage({ confirm }: Words, confirmation: Confirmation, title = confirm.done): Page {
  const { listName, teamName, isSuppressed } = confirmation;
  if (isSuppressed) return { title: confirm.held, paragraphs: [confirm.suppressed(teamName)] };
  return { title, paragraphs: [confirm.future(listName, teamName)] };
}

/** The page of a confirmation link whose sign-up has ended. */
const spentPage = ({ confirm }: Words): Page => ({ title: confirm.spent, paragraphs: [confirm.spentReason] });

/**
 * Serves the pages behind the links in mails. Opening a page changes nothing, because scanners and previews open links
 * too; the POST of its button does. No page tracks its reader, and no URL or page shows an address.
 */
export function publicRouter(deps: Pick<Deps, "env" | "log" | "orm" | "vault" | "images" | "isThrowaway">): Router {
  const { env, log, orm, vault, images } = deps;
  const router = Router({ caseSensitive: true });
  const { claimForTeam, patiently } = statementsBy(orm, vault);
  /** @returns the mail of a signed link, undefined for another; the request is its team's then */
  async function readMail(page: MailPage, req: Request<{ token: string }>, res: Response, isKept = false) {
    localsOf(res).route = `/${page}/{token}`;
    const mail = readMailToken(vault, page, req.params.token);
    if (mail) await claimForTeam(res, mail.sendId, (em) => teamOfMail(em, mail), isKept);
    return mail;
  }

  router.get("/u/:token", async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("u", req, res);
    if (!mail) return refuse(res);
    const origin = await readOrigin(orm.em.fork(), mail);
    const words = wordsFor(res);
    if (!origin) return refuse(res);
    if (origin.isErased) return show(res, erasedPage(words, origin));
    show(res, unsubscribePage(words, origin, origin.left));
  });

  router.post("/u/:token", readForm, async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("u", req, res, true);
    if (!mail) return refuse(res);
    const source = isOneClick(req.body) ? "one_click" : "link";
    const words = wordsFor(res);
    if (source === "link" && buttonOf(req.body) === UNDO) {
      const undone = await patiently((em) => undoUnsubscribe(em, vault, mail));
      if (!undone) return refuse(res);
      return show(res, undone.isErased ? erasedPage(words, undone) : undonePage(words, undone));
    }
    const scope = scopeOf(req.body);
    const left = await patiently((em) => unsubscribe(em, vault, mail, source, scope));
    if (!left) return refuse(res);
    if (left.isErased) return show(res, erasedPage(words, left));
    show(res, unsubscribedPage(words, left));
  });

  router.get("/t/:token", async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("t", req, res);
    if (!mail) return refuse(res);
    const consent = await readMailConsent(orm.em.fork(), mail);
    if (!consent) return refuse(res);
    const words = wordsFor(res);
    show(res, consent.isErased ? erasedPage(words, consent) : consentPage(words, consent));
  });

  router.post("/t/:token", readForm, async (req: Request<{ token: string }>, res) => {
    const mail = await readMail("t", req, res, true);
    if (!mail) return refuse(res);
    const status = CONSENT_BUTTONS.get(buttonOf(req.body));
    if (!status) return refuse(res, 400);
    const answered = await patiently((em) => answerMailConsent(em, vault, mail, status));
    if (!answered) return refuse(res);
    const words = wordsFor(res);
    show(res, answered.isErased ? erasedPage(words, answered) : consentPage(words, answered, true));
  });

  router.get("/v/:token", async (req: Request<{ token: string }>, res) => {
    const ref = await readMail("v", req, res);
    if (!ref || !localsOf(res).look) return refuse(res);
    const em = orm.em.fork();
    const mail = await readMailRow(em, ref);
    const words = wordsFor(res);
    if (mail && isPlaceholder(mail.email)) return show(res, erasedPage(words, mail));
    const shown = mail && (await MAILS.during(mail.teamId, res, () => showSentMail(em, vault, env.PUBLIC_URL, mail)));
    if (!shown) return show(res, noticePage(words.web.expired), 404);
    showMail(res, shown, { "Cache-Control": "no-store", "X-Robots-Tag": "noindex, nofollow" });
  });

  router.get("/c/:token", async (req: Request<{ token: string }>, res) => {
    localsOf(res).route = "/c/{token}";
    const token = readConfirmationToken(vault, req.params.token);
    if (!token) return refuse(res);
    await claimForTeam(res, token.listId, (em) => teamOfConfirmation(em, token));
    const confirmation = await readConfirmation(orm.em.fork(), token);
    const words = wordsFor(res);
    if (!confirmation) return show(res, spentPage(words), 404);
    if (!confirmation.isConfirmed) return show(res, confirmPage(words, confirmation));
    show(res, confirmedPage(words, confirmation, words.confirm.already));
  });

  router.post("/c/:token", readForm, async (req: Request<{ token: string }>, res) => {
    localsOf(res).route = "/c/{token}";
    const token = readConfirmationToken(vault, req.params.token);
    if (!token) return refuse(res);
    await claimForTeam(res, token.listId, (em) => teamOfConfirmation(em, token), true);
    const agreed = buttonOf(req.body) ?? undefined;
    const confirmation = await patiently((em) => confirmSubscription(em, vault, token, agreed));
    const words = wordsFor(res);
    if (!confirmation) return show(res, spentPage(words), 404);
    show(res, confirmation.isConfirmed ? confirmedPage(words, confirmation) : confirmPage(words, confirmation));
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

  addForms(router, deps);
  addWebPages(router, deps);

  const answerRefusal: ErrorRequestHandler = (error, _req, res, _next) => {
    // A wrong percent-encoding, or a form that is too large: none of our links and pages sends either.
    const given = error instanceof URIError ? 404 : "status" in Object(error) ? Number(error.status) : 500;
    if (given < 500 && given !== 429) return refuse(res, given);
    const { status } = refusalOf(error, localsOf(res), { log, links: linksOf(env.PUBLIC_URL) });
    res.set("Retry-After", String(UNAVAILABLE_RETRY_SECONDS));
    show(res, noticePage(wordsFor(res).refused), status);
  };
  router.use(["/u", "/t", "/v", "/c", "/i", "/f", "/n", "/a"], answerRefusal);
  return router;
}
