import { type ErrorRequestHandler, type Response, Router } from "express";
import { forTenant } from "../../db/orm.ts";
import { requireScope } from "../../domain/access/access.ts";
import { authenticateSession } from "../../domain/access/sessions.ts";
import { notFound } from "../../domain/errors.ts";
import { escapeHtml } from "../../domain/mail/template.ts";
import { showPage } from "../../domain/sends/drafts/shown-draft.ts";
import { showTemplate } from "../../domain/sends/drafts/templates.ts";
import { resourceTypeOf } from "../../domain/sends/operators/inspection.ts";
import type { Deps } from "../deps.ts";
import { mailPolicy } from "../public/shared.ts";
import { beforeDeadline, DEADLINE_MS } from "../rest/deadline.ts";
import { linksOf } from "../rest/envelope.ts";
import { toApiError } from "../rest/failures.ts";
import { localsOf } from "../rest/http.ts";
import { noteCaller, takeTurn } from "../rest/procedures.ts";
import { refusalOf } from "../rest/refusal.ts";
import { readCookie } from "./cookies.ts";

const POLICY = mailPolicy("sandbox", "frame-ancestors 'self'");

/** A scrollbar would take its width from the mail, which looks as in a narrower window then. A block is shown with what is before it. */
const WIDE = "<style>html{scrollbar-width:none}tr{scroll-margin-top:6rem}</style>";

function show(res: Response, html: string, policy = POLICY): void {
  res.set({ "Content-Security-Policy": policy, "X-Frame-Options": "SAMEORIGIN", "Cache-Control": "no-store" });
  // A sandboxed page has no origin that a cluster could be keyed by; browsers complain.
  res.removeHeader("Origin-Agent-Cluster");
  res.type("html").send(html + WIDE);
}

/** `GET /{newsletters|campaigns|templates}/{id}`: the HTML of a mail, or of that of a `step`, as a page for a frame; so is a refusal. */
export function mailPreview({ env, orm, vault, limits, log }: Deps): Router {
  const isSecure = env.PUBLIC_URL.startsWith("https:");
  const router = Router();
  router.get("/:kind/:id", async (req, res) => {
    // Postgres stores no NUL: no record can have one in its id.
    if (req.url.includes("%00")) throw notFound();
    const { kind, id } = req.params;
    const type = kind === "templates" ? undefined : resourceTypeOf(id);
    if (kind !== `${type ?? "template"}s`) throw notFound();
    const parameters = new URL(req.url, env.PUBLIC_URL).searchParams;
    const scope = `${type ?? "newsletter"}s:read` as const;
    const request = {
      token: readCookie(req, "session", isSecure),
      teamId: parameters.get("team") ?? "",
      environment: parameters.get("environment") === "TEST" ? ("TEST" as const) : ("LIVE" as const),
    };
    const locals = localsOf(res);
    const origin = { limits, clientAddress: locals.clientAddress, onCallerKnown: () => {} };
    const html = await beforeDeadline(DEADLINE_MS.read, async () => {
      const access = await authenticateSession(orm.em, vault, request, origin, scope);
      noteCaller(locals, access);
      requireScope(access, scope);
      await takeTurn("heavy", access, res);
      const em = forTenant(orm.em, access.tenant);
      if (!type) return showTemplate(em, access.tenant, id);
      const stepId = parameters.get("step") || undefined;
      return showPage(em, access.tenant, { type, id, stepId }, parameters.get("person") || undefined);
    });
    const policy = parameters.get("images") === "none" ? POLICY : `${POLICY};img-src http: https: data:`;
    show(res, html, policy);
  });
  const showRefusal: ErrorRequestHandler = (thrown, _req, res, _next) => {
    const { status, headers } = refusalOf(thrown, localsOf(res), { log, links: linksOf(env.PUBLIC_URL) });
    const words =
      status === 401 ? "Your session has ended. Sign in again to see this email." : toApiError(thrown).message;
    show(res.status(status).set(headers), `<meta name="color-scheme" content="light dark"><p>${escapeHtml(words)}</p>`);
  };
  router.use(showRefusal);
  return router;
}
