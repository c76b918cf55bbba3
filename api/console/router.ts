import { router } from "../rest/route.ts";
import { appRouter } from "../router.ts";

/** The procedures of the console: those of the REST API as they are, and those that only the app has. */
export const consoleRouter = router({
  api: appRouter,
  app: router({}),
});
export type ConsoleRouter = typeof consoleRouter;
