import express, { type Express, type RequestHandler, type Response } from "express";
import PostalMime from "postal-mime";
import { z } from "zod";
import { escapeHtml } from "../domain/mail/template.ts";
import { isLoopback } from "../lib/address-guard.ts";
import { type Faults, faultRules } from "./mail-faults.ts";
import type { CaughtMail, MailStore } from "./mail-store.ts";

const LATEST = 100;

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
const MAIL_POLICY = "default-src 'none'; img-src http: https: data:; style-src 'unsafe-inline'; sandbox allow-popups";

/** A template whose values are escaped, unless they come from `html` themselves. */
class Html {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}
const html = (parts: TemplateStringsArray, ...values: (string | number | Html | Html[])[]): Html => {
  const shown = values.map((value) =>
    [value]
      .flat()
      .map((v) => (v instanceof Html ? v.text : escapeHtml(String(v))))
      .join(""),
  );
  return new Html(parts.map((part, i) => part + (shown[i] ?? "")).join(""));
};

const STYLE = new Html(`<style>
  body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: #1d2733 }
  table { border-collapse: collapse; width: 100% } td, th { text-align: left; padding: .35rem .6rem; vertical-align: top }
  tr + tr { border-top: 1px solid #dde3ea } td.when { white-space: nowrap; color: #5b6875 } dt { color: #5b6875 }
  iframe { width: 100%; height: 32rem; border: 1px solid #dde3ea } pre { white-space: pre-wrap; overflow-wrap: anywhere }
</style>`);

function send(response: Response, title: string, body: Html): void {
  response
    .set({ "Content-Security-Policy": PAGE_POLICY, "X-Content-Type-Options": "nosniff", "Cache-Control": "no-store" })
    .type("html")
    .send(
      html`<!doctype html><html lang="en"><meta charset="utf-8"><title>${title}</title>${STYLE}${body}</html>`.text,
    );
}

function listPage(mails: CaughtMail[], store: MailStore, search: string): Html {
  const { received, recipients } = store.stats();
  const rows = mails.map(
    (mail) => html`<tr><td class="when">${mail.at.slice(0, 19).replace("T", " ")}</td><td>${mail.from}</td>
      <td>${mail.to.join(", ")}</td><td><a href="/messages/${mail.id}">${mail.subject || "(no subject)"}</a></td></tr>`,
  );
  return html`<meta http-equiv="refresh" content="5"><h1>Caught mail</h1>
    <p>${received} mails to ${recipients} recipients. Nothing here was delivered to anyone.</p>
    <form><input type="search" name="q" value="${search}" aria-label="Sender, recipient or subject"> <button>Search</button></form>
    <table><tr><th>Arrived (UTC)</th><th>From</th><th>To</th><th>Subject</th></tr>${rows}</table>`;
}

async function mailPage(mail: CaughtMail, source: Buffer | undefined): Promise<Html> {
  const head = html`<p><a href="/">All mails</a></p><h1>${mail.subject || "(no subject)"}</h1>
    <dl><dt>From</dt><dd>${mail.from}</dd><dt>To</dt><dd>${mail.to.join(", ")}</dd><dt>Arrived</dt><dd>${mail.at}</dd></dl>`;
  if (!source) return html`${head}<p>The content of a mail this old is not kept.</p>`;
  const { html: body, text } = await PostalMime.parse(source);
  return html`${head}
    ${body ? html`<h2>HTML</h2><iframe sandbox="allow-popups allow-popups-to-escape-sandbox" src="/messages/${mail.id}/html"></iframe>` : []}
    ${text ? html`<h2>Text</h2><pre>${text}</pre>` : []}
    <h2>Source</h2><p><a href="/api/messages/${mail.id}/source">Download</a></p><pre>${source.toString("utf8", 0, 200_000)}</pre>`;
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
    send(response, "Caught mail", listPage(store.latest(LATEST, search), store, search));
  });

  app.get("/messages/:id", async (request, response) => {
    const mail = store.get(Number(request.params.id));
    if (!mail) return void missing(response);
    send(response, mail.subject || "(no subject)", await mailPage(mail, store.source(mail.id)));
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
