import { extname } from "node:path";
import express, { type RequestHandler, Router } from "express";
import { ApiError } from "../../domain/errors.ts";
import { CONSOLE_FOLDER } from "./folder.ts";

/** The sources that the console's pages may load from. The preview of a mail is a page of its own, with a policy of its own. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
  "font-src 'self'",
  "connect-src 'self'",
  "frame-src 'self'",
  "base-uri 'none'",
  "form-action 'none'",
  "frame-ancestors 'none'",
].join(";");

const NOT_BUILT = "The console is not built: `npm run console` builds it, and `npm start` does so by itself.\n";

/** The files of the console; every other path below it is a page that the browser makes. */
export function consolePages(): Router {
  const router = Router();
  const files = express.static(`${CONSOLE_FOLDER}/assets`, { index: false, immutable: true, maxAge: "1y" });
  // The build compresses each file once.
  const compressed: RequestHandler = (req, res, next) => {
    res.removeHeader("Cache-Control");
    res.vary("Accept-Encoding");
    if (req.acceptsEncodings("gzip")) {
      res.type(extname(req.path)).set("Content-Encoding", "gzip");
      req.url += ".gz";
    }
    next();
  };
  const missing: RequestHandler = (_req, res) => {
    res.removeHeader("Content-Encoding");
    throw new ApiError("not_found", "The console has no such file; reload the page.");
  };
  router.use("/assets", compressed, files, missing);
  const page: RequestHandler = (_req, res, next) => {
    res.set({ "Content-Security-Policy": POLICY, "X-Frame-Options": "DENY", "Cache-Control": "no-cache" });
    res.sendFile("index.html", { root: CONSOLE_FOLDER, cacheControl: false }, (error) => {
      if (!error || res.headersSent) return;
      if ("code" in error && error.code === "ENOENT") res.status(503).type("text").send(NOT_BUILT);
      else next(error);
    });
  };
  router.get(["/", "/{*path}"], page);
  return router;
}
