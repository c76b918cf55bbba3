import { readFileSync } from "node:fs";
import express, { type Express, type RequestHandler, type Response } from "express";
import { Liquid } from "liquidjs";
import PostalMime from "postal-mime";
import { z } from "zod";
import { isLoopback } from "../lib/address-guard.ts";
import { type Faults, faultRules } from "./mail-faults.ts";
import type { MailStore } from "./mail-store.ts";

const LATEST = 100;
/** Of the source of a mail on its page. */
const MAX_SHOWN_BYTES = 200_000;

const listQuery = z.strictObject({
  /** Only mails to this address. */
  to: z.string().optional(),
  /** Only mails that arrived after the one with this id. */
  after: z.coerce.number().int().min(0).default(0),
  limit: z.coerce.number().int().min(1).max(10_000).default(100),
});

/** Nothing of a mail may run or load anything on the page around it. */
const PAGE_POLICY =
  "default-src 'none'; style-src 'unsafe-inline'; frame-src 'self'; base-uri 'none'; form-action 'self'";
/** The mail itself, in its frame: pictures and styles, no scripts. Its links open in tabs of their own. */
const MAIL_POLICY =
  "default-src 'none'; img-src http: https: data:; style-src 'unsafe-inline'; sandbox allow-popups allow-popups-to-escape-sandbox";

/** Every value is escaped. */
const liquid = new Liquid({ outputEscape: "escape" });
const PAGE = liquid.parse(readFileSync(`${import.meta.dirname}/mail-page.liquid`, "utf8"));

function send(response: Response, page: { title: string } & Record<string, unknown>): void {
  response
    .set({ "Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store" })
    .type("html")
    .send(liquid.renderSync(PAGE, page));
}

/**
 * Answers requests for this machine only. A page on the Internet can point its own host name at 127.0.0.1 and would then
 * be allowed by the browser to read every mail: its name stays in `Host`.
 */
const localNamesOnly: RequestHandler = (request, response, next) => {
  const { host = "" } = request.headers;
  const hostname = URL.canParse(`http://${host}`) ? new URL(`http://${host}`).hostname : "";
  if (hostname === "localhost" || isLoopback(hostname.replace(/^\[|\]$/g, ""))) return next();
  response.status(421).json({ error: "Open the mail catcher as localhost or 127.0.0.1" });
};

/** The mail catcher's page for people and its JSON for tests. */
export function mailPages(store: MailStore, faults: Faults): Express {
  const app = express()
    .disable("x-powered-by")
    .use(localNamesOnly)
    .use(express.json({ limit: "1mb" }));
  const missing = (response: Response) => response.status(404).json({ error: "There is no such mail" });

  app.get("/", (request, response) => {
    const search = String(request.query["q"] ?? "");
    send(response, { title: "Caught mail", mails: store.latest(LATEST, search), stats: store.stats(), search });
  });

  app.get("/messages/:id", async (request, response) => {
    const mail = store.get(Number(request.params.id));
    if (!mail) return void missing(response);
    const bytes = store.source(mail.id);
    const content = bytes && (await PostalMime.parse(bytes));
    const source = bytes?.toString("utf8", 0, MAX_SHOWN_BYTES);
    send(response, { title: mail.subject || "(no subject)", mail, content, source });
  });

  app.get("/messages/:id/html", async (request, response) => {
    const source = store.source(Number(request.params.id));
    if (!source) return void missing(response);
    const { html: body } = await PostalMime.parse(source);
    response
      .set({
        "Content-Security-Policy": MAIL_POLICY,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
      })
      .type("html")
      .send(`<base target="_blank">${body ?? ""}`);
  });

  app.get("/api/messages", (request, response) => {
    const query = listQuery.safeParse(request.query);
    if (!query.success) return void response.status(400).json({ error: z.prettifyError(query.error) });
    response.json({ messages: store.list(query.data) });
  });

  app.delete("/api/messages", (_request, response) => {
    store.clear();
    response.status(204).end();
  });

  app.get("/api/messages/:id", async (request, response) => {
    const mail = store.get(Number(request.params.id));
    if (!mail) return void missing(response);
    const source = store.source(mail.id);
    const { headers, html: body, text } = source ? await PostalMime.parse(source) : {};
    response.json({ ...mail, headers: headers ?? null, html: body ?? null, text: text ?? null });
  });

  app.get("/api/messages/:id/source", (request, response) => {
    const source = store.source(Number(request.params.id));
    if (!source) return void missing(response);
    response.set("X-Content-Type-Options", "nosniff").type("text/plain; charset=utf-8").send(source);
  });

  app.get("/api/stats", (_request, response) => void response.json(store.stats()));

  app.get("/api/faults", (_request, response) => void response.json(faults.list()));
  app.put("/api/faults", (request, response) => {
    const rules = faultRules.safeParse(request.body);
    if (!rules.success) return void response.status(400).json({ error: z.prettifyError(rules.error) });
    const { match } = request.query;
    faults.replace(rules.data, typeof match === "string" ? match : undefined);
    response.json(faults.list());
  });
  return app;
}
