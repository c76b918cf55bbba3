import { accountsRouter } from "./accounts/routes.ts";
import { analyticsRouter } from "./analytics/routes.ts";
import { campaignsRouter } from "./campaigns/routes.ts";
import { contactsRouter } from "./contacts/routes.ts";
import { formsRouter } from "./forms/routes.ts";
import { listsRouter } from "./lists/routes.ts";
import { meRouter } from "./me/routes.ts";
import { newslettersRouter } from "./newsletters/routes.ts";
import { router } from "./rest/route.ts";
import { subscribersRouter } from "./subscribers/routes.ts";
import { suppressionsRouter } from "./suppressions/routes.ts";
import { unsubscribesRouter } from "./unsubscribes/routes.ts";
import { usageRouter } from "./usage/routes.ts";
import { webhooksRouter } from "./webhooks/routes.ts";

/** Every REST route, one router per resource. */
export const appRouter = router({
  me: meRouter,
  lists: listsRouter,
  forms: formsRouter,
  subscribers: subscribersRouter,
  contacts: contactsRouter,
  newsletters: newslettersRouter,
  campaigns: campaignsRouter,
  suppressions: suppressionsRouter,
  unsubscribes: unsubscribesRouter,
  accounts: accountsRouter,
  webhooks: webhooksRouter,
  analytics: analyticsRouter,
  usage: usageRouter,
});
