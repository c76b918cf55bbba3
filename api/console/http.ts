import { createExpressMiddleware } from "@trpc/server/adapters/express";
import { type Request, type RequestHandler, type Response, Router } from "express";
import { z } from "zod";
import { ENVIRONMENTS } from "../../db/entities/shared.ts";
import type { EntityManager } from "../../db/orm.ts";
import { claimFor } from "../../db/pool.ts";
import { transaction } from "../../db/transaction.ts";
import { isUnawaited } from "../../db/unreachable.ts";
import {
  authenticateSession,
  endSession,
  newCookieToken,
  openSession,
  readSession,
  requestLink,
  type SessionRequest,
} from "../../domain/access/sessions.ts";
import { lookupAddress } from "../../domain/address.ts";
import { ApiError } from "../../domain/errors.ts";
import { awaitHashKey } from "../../domain/secrets/admission.ts";
import type { Call } from "../context.ts";
import type { Deps } from "../deps.ts";
import { address } from "../fields.ts";
import { serveKept } from "../kept-answer.ts";
import { beforeDeadline, DEADLINE_MS } from "../rest/deadline.ts";
import { retryAfter } from "../rest/envelope.ts";
import { thrownBy, toApiError } from "../rest/failures.ts";
import { localsOf, MAX_BODY_BYTES, mayBeLarge, readBody } from "../rest/http.ts";
import { parseItem } from "../rest/input.ts";
import { readCookie, setCookie } from "./cookies.ts";
import { imageUpload } from "./images/upload.ts";
import { providerSignIn } from "./oidc.ts";
import { consolePages } from "./pages.ts";
import { mailPreview } from "./preview.ts";
import { consoleRouter } from "./router.ts";
import { inputSchemas } from "./schemas.ts";

const JSON_HEADERS = { "Content-Type": "application/json; charset=utf-8", "Cache-Control": "no-cache" };

/** A session as its pages get it. */
export type Session = Awaited<ReturnType<typeof readSession>>;

/** The provider's name, and whether there are links by mail, for the sign-in page. */
export type SignInWays = { provider: string | null; by_link: boolean };

/** Requests for a link, or for the provider, that are answered in a minute. */
const SIGN_INS_PER_NETWORK = 20;
/** The largest `int` of Postgres. */
const UNLIMITED = 2_147_483_647;
const TOO_MANY = "Too many links were asked for; wait a minute, then ask again.";

const signInBody = z.strictObject({ email: address });
const sessionBody = z.strictObject({ link: z.string().max(200) });

/** Lets a write pass that a page of this service has made: a cookie alone would also come with another site's. */
function ownOrigin(publicUrl: string): RequestHandler {
  const own = new URL(publicUrl).origin;
  return ({ method, headers }, _res, next) => {
    if (method === "GET" || method === "HEAD" || headers.origin === own) return next();
    throw new ApiError(
      "role_insufficient",
      `Open the console at ${own}/console: requests of other origins are refused.`,
    );
  };
}

/** The console: its pages, sign-in, and the procedures that they call. */
export function consoleHandler(deps: Deps): Router {
  const { env, orm, vault, limits, provider } = deps;
  const isSecure = env.PUBLIC_URL.startsWith("https:");
  const connected = async () => {
    const em = orm.em.fork();
    await awaitHashKey(em, vault);
    return em;
  };
  const router = Router();
  router.use((_req, res, next) => {
    const locals = localsOf(res);
    locals.route = "/console";
    // Apart from the API's callers of one address.
    claimFor(`console/${locals.clientAddress ?? locals.requestId}`);
    res.set("Cache-Control", "no-store");
    next();
  });
  router.use(ownOrigin(env.PUBLIC_URL));

  /** Bounds a call that is none of a team's. Its body is small, and waited for before anything that others may need. */
  const own =
    (handle: (req: Request, res: Response) => Promise<void>): RequestHandler =>
    (req, res) => {
      if (mayBeLarge(req)) throw new ApiError("payload_too_large");
      return beforeDeadline(DEADLINE_MS.read, () => handle(req, res));
    };

  /** @throws {ApiError} `validation_failed` */
  const sessionOf = (req: Request): SessionRequest => {
    const environment = ENVIRONMENTS.find((name) => name === (req.headers["mailkeel-environment"] ?? "LIVE"));
    if (!environment) {
      throw new ApiError("validation_failed", `Mailkeel-Environment is ${ENVIRONMENTS.join(" or ")}.`);
    }
    const teamId = String(req.headers["mailkeel-team"] ?? "");
    return { token: readCookie(req, "session", isSecure), teamId, environment };
  };

  /** @param other stands for the network where none is known; then no limit holds, by which one could lock out others */
  const limitSignIns = (em: EntityManager, res: Response, other = "") => {
    const network = localsOf(res).clientAddress;
    const limit = network === null ? UNLIMITED : SIGN_INS_PER_NETWORK;
    return limits.limitRequests(em, `sign-in/${network ?? other}`, limit, TOO_MANY);
  };

  const ways = { provider: provider ? env.OIDC_NAME : null, by_link: env.SIGN_IN_LINKS === "on" };
  router.get("/sign-in/ways", (_req, res) => void res.json(ways satisfies SignInWays));
  if (provider) router.use("/sign-in/oidc", providerSignIn(deps, provider, { isSecure, connected, limitSignIns }));
  router.post(
    "/sign-in",
    own(async (req, res) => {
      if (!ways.by_link) throw new ApiError("not_found", "There are no links by email here; reload this page.");
      const email = lookupAddress(parseItem(signInBody, await readBody(req), []).email);
      const em = await connected();
      const browser = readCookie(req, "sign_in", isSecure) ?? newCookieToken();
      // Counted in the same transaction: the commit takes the same time for an unknown address.
      await transaction(em, async (tx) => {
        await limitSignIns(tx, res, vault.hash("session", email));
        await requestLink(tx, vault, email, browser);
      });
      setCookie(res, "sign_in", browser, isSecure);
      res.status(202).json({});
    }),
  );

  router.post(
    "/session",
    own(async (req, res) => {
      const { link } = parseItem(sessionBody, await readBody(req), []);
      const em = await connected();
      const open = () => openSession(em, vault, { link, browser: readCookie(req, "sign_in", isSecure) });
      const token = await limits.limitFailures(em, localsOf(res).clientAddress, open);
      setCookie(res, "session", token, isSecure);
      setCookie(res, "sign_in", undefined, isSecure);
      res.json({});
    }),
  );

  router.get(
    "/session",
    own(async (req, res) => {
      const token = readCookie(req, "session", isSecure);
      if (token === undefined) throw new ApiError("api_key_missing", "Sign in first.");
      const em = await connected();
      const read = () => readSession(em, vault, token);
      const session = await limits.limitFailures(em, localsOf(res).clientAddress, read, token);
      await limits.limitRequests(em, `session/${vault.hash("session", token)}`, env.RATE_LIMIT_PER_MINUTE);
      res.json(session);
    }),
  );

  router.delete(
    "/session",
    own(async (req, res) => {
      const token = readCookie(req, "session", isSecure);
      if (token !== undefined) await endSession(await connected(), vault, token, req.query["everywhere"] === "true");
      setCookie(res, "session", undefined, isSecure);
      res.json({});
    }),
  );

  router.use(
    "/trpc",
    createExpressMiddleware({
      router: consoleRouter,
      allowBatching: false,
      maxBodySize: MAX_BODY_BYTES,
      createContext: ({ req, res }): Call => {
        return {
          deps,
          locals: localsOf(res),
          headers: req.headersDistinct,
          answering: res,
          // A save may wait for a mail server, and before that for its turn at it.
          deadlineMs: DEADLINE_MS.workflow,
          readDryRun: () => req.headersDistinct["mailkeel-dry-run"]?.[0],
          authenticate: (scope, onCallerKnown) => {
            const origin = { limits, clientAddress: localsOf(res).clientAddress, onCallerKnown };
            return authenticateSession(orm.em, vault, sessionOf(req), origin, scope);
          },
        };
      },
      responseMeta({ errors: [error] }) {
        if (!error) return {};
        const refusal = toApiError(thrownBy(error));
        return { status: refusal.status, headers: retryAfter(refusal) };
      },
      onError: ({ error, ctx }) => {
        const refusal = toApiError(thrownBy(error));
        const { requestId, teamId } = ctx?.locals ?? {};
        if (ctx) ctx.locals.code = refusal.code;
        if (refusal.status >= 500 && !isUnawaited(refusal))
          deps.log.error({ requestId, teamId, err: refusal }, refusal.code);
      },
    }),
  );
  router.get(
    "/schemas",
    serveKept({ headers: JSON_HEADERS, read: async () => Buffer.from(JSON.stringify(inputSchemas())) }),
  );
  router.post("/images", imageUpload(deps, sessionOf));
  router.use("/preview", mailPreview(deps));
  router.use(consolePages());
  return router;
}
