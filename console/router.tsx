import type { QueryClient } from "@tanstack/react-query";
import {
  createRootRouteWithContext,
  createRoute,
  createRouter,
  lazyRouteComponent,
  Outlet,
} from "@tanstack/react-router";
import { Frame } from "./frame.tsx";
import { SignIn } from "./pages/sign-in.tsx";
import { Teams } from "./pages/teams.tsx";
import { NotFound } from "./parts/page.tsx";

/** Search parameters stay texts: a page reads those that it knows. */
type Search = Record<string, string | undefined>;

const root = createRootRouteWithContext<{ queryClient: QueryClient }>()({
  component: Outlet,
  notFoundComponent: NotFound,
});
const frame = createRoute({ getParentRoute: () => root, path: "/$team/$environment", component: Frame });

/** A page of a team, whose code is loaded when it is opened. */
const page = <Path extends string>(path: Path, load: () => Promise<{ Page: () => React.ReactNode }>) =>
  createRoute({
    getParentRoute: () => frame,
    path,
    validateSearch: (search: Record<string, unknown>): Search =>
      Object.fromEntries(
        Object.entries(search).flatMap(([name, value]) => (value === undefined ? [] : [[name, String(value)]])),
      ),
    component: lazyRouteComponent(load, "Page"),
  });

const tree = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: Teams }),
  createRoute({ getParentRoute: () => root, path: "/sign-in", component: SignIn }),
  frame.addChildren([
    page("/", () => import("./pages/overview.tsx")),
    page("/newsletters", () => import("./pages/newsletters.tsx")),
    page("/newsletters/$newsletterId", () => import("./pages/newsletter.tsx")),
    page("/campaigns", () => import("./pages/campaigns.tsx")),
    page("/campaigns/$campaignId", () => import("./pages/campaign.tsx")),
    page("/sequences", () => import("./pages/sequences.tsx")),
    page("/sequences/$sequenceId", () => import("./pages/sequence.tsx")),
    page("/lists", () => import("./pages/lists.tsx")),
    page("/lists/$listId", () => import("./pages/list.tsx")),
    page("/subscribers", () => import("./pages/subscribers.tsx")),
    page("/contacts", () => import("./pages/contacts.tsx")),
    page("/people/$email", () => import("./pages/person.tsx")),
    page("/segments", () => import("./pages/segments.tsx")),
    page("/segments/$segmentId", () => import("./pages/segment.tsx")),
    page("/fields", () => import("./pages/fields.tsx")),
    page("/imports", () => import("./pages/imports.tsx")),
    page("/imports/$importId", () => import("./pages/import.tsx")),
    page("/suppressions", () => import("./pages/suppressions.tsx")),
    page("/accounts", () => import("./pages/accounts.tsx")),
    page("/accounts/$accountId", () => import("./pages/account.tsx")),
    page("/domains", () => import("./pages/domains.tsx")),
    page("/webhooks", () => import("./pages/webhooks.tsx")),
    page("/webhooks/$webhookId", () => import("./pages/webhook.tsx")),
    page("/keys", () => import("./pages/keys.tsx")),
    page("/members", () => import("./pages/members.tsx")),
    page("/usage", () => import("./pages/usage.tsx")),
    page("/settings", () => import("./pages/settings.tsx")),
  ]),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: "/console",
  context: { queryClient: undefined as unknown as QueryClient },
  // Search parameters are written plainly, so that a link reads well.
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== "");
    const text = new URLSearchParams(given as [string, string][]).toString();
    return text === "" ? "" : `?${text}`;
  },
});

declare module "@tanstack/react-router" {
  interface Register {
    router: typeof router;
  }
}
