import { setTimeout as delay } from "node:timers/promises";
import type { Request, Response, Router } from "express";
import { z } from "zod";
import { hasControlCharacter } from "../../domain/audience/rules.ts";
import { ApiError } from "../../domain/errors.ts";
import { countForm, findForm, type PublicForm } from "../../domain/forms/forms.ts";
import { CHALLENGE_MS, newChallenge, type Proof, readProof, WAIT_SECONDS } from "../../domain/forms/proof.ts";
import { admitSignUp, type SignUp, signUp } from "../../domain/forms/sign-up.ts";
import type { Words } from "../../domain/languages/en.ts";
import type { Deps } from "../deps.ts";
import { address, personName } from "../fields.ts";
import { serveKept } from "../kept-answer.ts";
import { localsOf } from "../rest/http.ts";
import { readAsset, readForm, refuse, show, statementsBy, templateOf, wordsFor } from "./shared.ts";

/** A sign-up takes as long for an address that is known as for another one: so long at least. */
const SIGN_UP_MS = 400;
/** A module is loaded by CORS. */
const SCRIPT_HEADERS = {
  "Content-Type": "text/javascript; charset=utf-8",
  "Cache-Control": "public, max-age=3600",
  "Cross-Origin-Resource-Policy": "cross-origin",
  "Access-Control-Allow-Origin": "*",
};
const PREFLIGHT_HEADERS = {
  "Access-Control-Allow-Methods": "GET, POST",
  "Access-Control-Allow-Headers": "Content-Type",
  "Access-Control-Max-Age": "600",
};

const fillForm = templateOf("form.liquid");

/** The second step, for people without scripts. */
interface Step {
  /** The values that they typed. No page shows them: another person may have posted them. */
  sealed: string;
  challenge: string;
  /** How long the button has to wait; a script solves the challenge at once. */
  wait: string;
}

/**
 * The form as HTML, for any website. It names its texts: a website may show older ones for years.
 * @param own of the service's page alone: the sentence above the fields, or the second step in their place
 */
export const formHtml = (
  action: string,
  { fields, consent, tracking, textId }: Pick<PublicForm, "fields" | "consent" | "tracking" | "textId">,
  { signUp: words }: Words,
  own: { intro?: string; step?: Step | undefined } = {},
): string => fillForm({ action, fields, consent, tracking, textId, words, ...own });

/** The texts that a browser or a program has posted, by their names; none for a body or a text that cannot be read. */
function readTexts(body: unknown, isJson: boolean): (name: string) => string {
  let given: unknown;
  try {
    given = isJson ? JSON.parse(String(body)) : Object.fromEntries(new URLSearchParams(String(body)));
  } catch {
    // It is none.
  }
  const { data = {} } = z.record(z.string(), z.unknown()).safeParse(given);
  return (name) => {
    const text = data[name] === true ? "on" : data[name];
    return typeof text === "string" && text.isWellFormed() && !hasControlCharacter(text) ? text : "";
  };
}

/** Adds the sign-up forms: a page, its scripts, and what they and websites post. */
export function addForms(
  router: Router,
  { orm, vault, isThrowaway }: Pick<Deps, "orm" | "vault" | "isThrowaway">,
): void {
  const statements = statementsBy(orm, vault);
  const { patiently } = statements;
  for (const name of ["form.js", "proof.js"]) {
    router.get(`/f/${name}`, serveKept({ headers: SCRIPT_HEADERS, read: async () => Buffer.from(readAsset(name)) }));
  }

  type FormRequest = Request<{ form: string }>;
  /** Answers a request for no form. The scripts of the form's sites may read the answers. */
  async function formFor(req: FormRequest, res: Response, isKept = false): Promise<PublicForm | undefined> {
    localsOf(res).route = "/f/{form}";
    const form = await statements.claimForReference(res, "form", req.params.form, findForm, isKept);
    if (!form) return void refuse(res);
    const { origin } = req.headers;
    res.vary("Origin");
    if (origin && form.sites.includes(origin)) res.set("Access-Control-Allow-Origin", origin);
    return form;
  }
  /** @param message above the form, or in its place once it is closed */
  function showForm({ params }: FormRequest, res: Response, form: PublicForm, status = 200, message = "", step?: Step) {
    const words = wordsFor(res);
    const intro = words.signUp.intro(form.listName, form.teamName);
    const html = formHtml(`/f/${params.form}`, form, words, { intro, step });
    const page = { title: words.confirm.title(form.listName), paragraphs: message ? [message] : [] };
    show(res, form.isOpen ? { ...page, form: { html, thankYouUrl: form.thankYouUrl } } : page, status);
  }

  const sealContext = ({ id }: PublicForm) => `form-step/${id}`;
  const seal = (form: PublicForm, person: SignUp): string =>
    vault.encrypt(JSON.stringify({ person, until: Date.now() + CHALLENGE_MS }), sealContext(form));
  function unseal(form: PublicForm, sealed: string): SignUp | undefined {
    try {
      const { person, until } = JSON.parse(vault.decrypt(sealed, sealContext(form)));
      return until > Date.now() ? person : undefined;
    } catch {
      return undefined;
    }
  }

  /** @returns the reason where the address is refused; a name that is too long is left out */
  function readPerson({ fields }: PublicForm, textOf: (name: string) => string, words: Words): SignUp | string {
    const { data: email } = address.safeParse(textOf("email"));
    if (email === undefined) return words.signUp.invalid;
    if (isThrowaway(email)) return words.signUp.throwaway;
    const nameOf = (field: "first_name" | "last_name") =>
      (fields.includes(field) && personName.safeParse(textOf(field)).data) || null;
    const [firstName, lastName] = [nameOf("first_name"), nameOf("last_name")];
    return { email, firstName, lastName, textId: textOf("text"), tracking: textOf("tracking") === "on" };
  }

  /** @returns why a sign-up was not taken; undefined where it was, or where its person must not learn why not */
  async function take(res: Response, form: PublicForm, person: SignUp, proof: Proof) {
    const network = localsOf(res).clientAddress;
    try {
      if (!(await patiently((em) => admitSignUp(em, vault, form.id, proof, network)))) return "again";
      await patiently((em) => signUp(em, vault, form, person));
    } catch (error) {
      const code = error instanceof ApiError ? error.code : undefined;
      if (code === "rate_limit_exceeded") return "many";
      if (code !== "person_erased" && code !== "quota_exceeded") throw error;
    }
    return undefined;
  }

  router.options(["/f/:form", "/f/:form/challenge"], async (req: FormRequest, res) => {
    if (await formFor(req, res)) res.status(204).set(PREFLIGHT_HEADERS).end();
  });

  router.get("/f/:form", async (req: FormRequest, res) => {
    const form = await formFor(req, res);
    if (!form) return;
    if (!form.isOpen) return showForm(req, res, form, 404, wordsFor(res).signUp.closed);
    if (req.method === "GET") await countForm(orm.em.fork(), form.id, "shown");
    showForm(req, res, form);
  });

  router.get("/f/:form/challenge", async (req: FormRequest, res) => {
    const form = await formFor(req, res);
    if (!form) return;
    // On its own page the form was counted when that was shown.
    if (req.headers.origin) await countForm(orm.em.fork(), form.id, "shown");
    res.set("Cache-Control", "no-store").json(newChallenge(vault, form.id));
  });

  router.post("/f/:form", readForm, async (req: FormRequest, res) => {
    const form = await formFor(req, res, true);
    if (!form) return;
    const atEnd = delay(SIGN_UP_MS);
    const isJson = req.is("json") !== false;
    const words = wordsFor(res);
    const { closed, again, many, wait, done, mailed } = words.signUp;
    const say = (status: number, message: string, field: "email" | "proof" | null = null) =>
      isJson ? void res.status(status).json({ error: { field, message } }) : showForm(req, res, form, status, message);
    if (!form.isOpen) return say(404, closed);
    const textOf = readTexts(req.body, isJson);
    const sealed = textOf("sealed");
    const person = sealed ? unseal(form, sealed) : readPerson(form, textOf, words);
    if (person === undefined) return say(422, again);
    if (typeof person === "string") return say(422, person, "email");
    const proof = readProof(vault, form.id, textOf("proof"));
    // No person sees this field.
    if (!textOf("homepage")) {
      if ((!proof || proof.isEarly) && !isJson) {
        // A button that is pressed too early does not make its person wait anew.
        const challenge = proof ? textOf("proof") : newChallenge(vault, form.id).challenge;
        return showForm(req, res, form, 200, "", { sealed: seal(form, person), challenge, wait: wait(WAIT_SECONDS) });
      }
      const refused = !proof || proof.isEarly ? "again" : await take(res, form, person, proof);
      await atEnd;
      if (refused === "again") return say(422, again, "proof");
      if (refused) return say(429, many);
    }
    await atEnd;
    if (isJson) return void res.json({ title: done, message: mailed, url: form.thankYouUrl });
    if (form.thankYouUrl !== null) return res.redirect(303, form.thankYouUrl);
    show(res, { title: done, paragraphs: [mailed] });
  });
}
