import { type Request, type RequestHandler, type Response, Router } from "express";
import type { EntityManager } from "../../db/orm.ts";
import { openProviderSession } from "../../domain/access/identities.ts";
import { type SignInProblem, type SignInProvider, SignInRefusal } from "../../domain/access/oidc.ts";
import { newCookieToken } from "../../domain/access/sessions.ts";
import type { Deps } from "../deps.ts";
import { beforeDeadline, DEADLINE_MS } from "../rest/deadline.ts";
import { toApiError } from "../rest/failures.ts";
import { localsOf } from "../rest/http.ts";
import { OIDC_MINUTES, readCookie, setCookie } from "./cookies.ts";

/** `?problem=` of the sign-in page. */
export type ShownProblem = SignInProblem | "limited";

const MAX_QUERY_LENGTH = 8_192;
const MAX_PAGE_LENGTH = 1_000;

/** The page to return to: one of the console's, or its first. */
function pageOf(given: unknown, publicUrl: string): string {
  const page = typeof given === "string" ? URL.parse(given, publicUrl) : null;
  const isOwn = page?.origin === publicUrl && page.pathname.startsWith("/console/");
  const path = isOwn ? page.pathname + page.search : "";
  // A cookie holds it.
  return path && path.length <= MAX_PAGE_LENGTH ? path : "/console/";
}

interface Facilities {
  isSecure: boolean;
  connected: () => Promise<EntityManager>;
  limitSignIns: (em: EntityManager, res: Response) => Promise<void>;
}

/** The way to an OpenID Connect provider, and back. The sign-in page shows a refusal. */
export function providerSignIn(
  { env, vault, limits, log }: Deps,
  provider: SignInProvider,
  { isSecure, connected, limitSignIns }: Facilities,
): Router {
  /** Signatures of the text in the browser's cookie: none is stored. */
  const secretsOf = (flow: string) => {
    const [state, nonce, verifier] = ["state", "nonce", "verifier"].map((name) => vault.sign("sign-in", name, flow));
    return { state, nonce, verifier } as Record<"state" | "nonce" | "verifier", string>;
  };
  /** @param work gives the next page */
  const leading =
    (work: (req: Request, res: Response) => Promise<string>): RequestHandler =>
    async (req, res) => {
      const next = await beforeDeadline(DEADLINE_MS.read, () => work(req, res)).catch((error) => {
        const { code, status } = toApiError(error);
        const { requestId } = Object.assign(localsOf(res), { code });
        if (status !== 429) log[status >= 500 ? "error" : "warn"]({ requestId, err: error }, "sign-in refused");
        const other: ShownProblem = status === 429 ? "limited" : "unavailable";
        return `/console/sign-in?problem=${error instanceof SignInRefusal ? error.problem : other}`;
      });
      res.redirect(303, next);
    };

  const begin = leading(async (req, res) => {
    await limitSignIns(await connected(), res);
    const page = Buffer.from(pageOf(req.query["page"], env.PUBLIC_URL)).toString("base64url");
    const flow = [Date.now(), newCookieToken(), page].join(".");
    const { href } = await provider.begin(secretsOf(flow));
    setCookie(res, "oidc", flow, isSecure);
    return href;
  });
  const callback = leading(async (req, res) => {
    const flow = readCookie(req, "oidc", isSecure) ?? "";
    const [begunAt, , page = ""] = flow.split(".");
    const query = req.originalUrl.split("?").slice(1).join("?");
    const { state } = req.query;
    const em = await connected();
    const token = await limits.limitFailures(em, localsOf(res).clientAddress, async () => {
      const isOurs = typeof state === "string" && vault.verify(state, "sign-in", "state", flow);
      const isRecent = Date.now() - Number(begunAt) <= OIDC_MINUTES * 60_000;
      if (!isOurs || !isRecent || query.length > MAX_QUERY_LENGTH) throw new SignInRefusal("expired");
      const person = await provider.readPerson(query, { ...secretsOf(flow), state });
      return openProviderSession(em, vault, person, { flow, teamId: env.OIDC_TEAM_ID });
    });
    setCookie(res, "session", token, isSecure);
    setCookie(res, "oidc", undefined, isSecure);
    return pageOf(Buffer.from(page, "base64url").toString(), env.PUBLIC_URL);
  });
  return Router().get("/", begin).get("/callback", callback);
}
