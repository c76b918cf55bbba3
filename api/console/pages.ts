import express, { type RequestHandler, Router } from "express";
import { CONSOLE_FOLDER } from "./folder.ts";

/** What the console's pages may load. The preview of a mail is a page of its own, with a policy of its own. */
const POLICY = [
  "default-src 'none'",
  "script-src 'self'",
  "style-src 'self'",
  "img-src 'self' data:",
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
  const files = express.static(CONSOLE_FOLDER, { index: false, immutable: true, maxAge: "1y", cacheControl: true });
  router.use("/assets", (_req, res, next) => {
    res.removeHeader("Cache-Control");
    next();
  });
  router.use(files);
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
