import { endpointsOf } from "../rest/endpoints.ts";
import { router } from "../rest/route.ts";
import { appRouter } from "../router.ts";
import { accountsRouter } from "./accounts/routes.ts";
import { audienceRouter } from "./audience/routes.ts";
import { auditRouter } from "./audit/routes.ts";
import { binRouter } from "./bin/routes.ts";
import { contentRouter } from "./content/routes.ts";
import { formsRouter } from "./forms/routes.ts";
import { imagesRouter } from "./images/routes.ts";
import { importsRouter } from "./imports/routes.ts";
import { overviewRouter } from "./overview/routes.ts";
import { peopleRouter } from "./people/routes.ts";
import { sequencesRouter } from "./sequences/routes.ts";
import { teamRouter } from "./team/routes.ts";
import { templatesRouter } from "./templates/routes.ts";

const app = router({
  content: contentRouter,
  templates: templatesRouter,
  audience: audienceRouter,
  bin: binRouter,
  forms: formsRouter,
  images: imagesRouter,
  imports: importsRouter,
  people: peopleRouter,
  sequences: sequencesRouter,
  accounts: accountsRouter,
  team: teamRouter,
  audit: auditRouter,
  overview: overviewRouter,
});
// `/console/accounts.connect`: answers are remembered, and cursors bound, by a procedure's place in the router.
for (const { name, meta } of endpointsOf(app)) meta.path = `/console/${name}`;

/** The procedures of the console: those of the REST API as they are, and those that only the app has. */
export const consoleRouter = router({ api: appRouter, app });
export type ConsoleRouter = typeof consoleRouter;
