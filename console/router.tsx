import { useSuspenseQuery } from "@tanstack/react-query";
import { createRootRoute, createRoute, createRouter, Outlet } from "@tanstack/react-router";
import { reach } from "./api.ts";
import { Frame } from "./frame.tsx";
import { SignIn, Teams } from "./pages/sign-in.tsx";
import { Failed, Loading, NotFound } from "./parts/page.tsx";

const root = createRootRoute({ component: Outlet, notFoundComponent: NotFound });
const frame = createRoute({ getParentRoute: () => root, path: "/$team/$environment", component: Frame });

/** A page of a team, whose code is loaded when it is opened. @param name of the component */
const page = <Path extends string, Name extends string>(
  path: Path,
  load: () => Promise<Record<Name, () => React.ReactNode>>,
  name: Name,
) =>
  createRoute({
    getParentRoute: () => frame,
    path,
    // Search parameters are texts: a page reads those that it knows.
    validateSearch: (search) => search as Record<string, string | undefined>,
    component: function Page() {
      const queryFn = async (): Promise<{ Component: React.FC }> => ({
        Component: (await load().catch(whereFailed))[name],
      });
      const { data } = useSuspenseQuery({ queryKey: ["code", path], queryFn, staleTime: "static", gcTime: Infinity });
      return <data.Component />;
    },
  });

/** A document that is younger has the names of the files of today. */
const YOUNG_MS = 10_000;

/** Loads the console again where its files were built anew since. Without a service the browser would show its own page. */
async function whereFailed(error: unknown): Promise<never> {
  await reach("/console/", { method: "HEAD", cache: "no-store" });
  if (performance.now() > YOUNG_MS) {
    window.location.reload();
    await new Promise(() => {});
  }
  throw error;
}

const tree = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: Teams }),
  createRoute({ getParentRoute: () => root, path: "/sign-in", component: SignIn }),
  frame.addChildren([
    page("/", () => import("./pages/overview.tsx"), "Page"),
    page("/newsletters", () => import("./pages/drafts.tsx"), "Newsletters"),
    page("/newsletters/$newsletterId", () => import("./pages/draft.tsx"), "Newsletter"),
    page("/campaigns", () => import("./pages/drafts.tsx"), "Campaigns"),
    page("/campaigns/$campaignId", () => import("./pages/draft.tsx"), "Campaign"),
    page("/templates", () => import("./pages/templates.tsx"), "Page"),
    page("/sequences", () => import("./pages/sequences.tsx"), "Sequences"),
    page("/sequences/$sequenceId", () => import("./pages/sequences.tsx"), "OneSequence"),
    page("/lists", () => import("./pages/lists.tsx"), "Lists"),
    page("/lists/$listId", () => import("./pages/lists.tsx"), "OneList"),
    page("/forms", () => import("./pages/forms.tsx"), "Page"),
    page("/people", () => import("./pages/people.tsx"), "Page"),
    page("/people/$email", () => import("./pages/person.tsx"), "Page"),
    page("/segments", () => import("./pages/segments.tsx"), "Segments"),
    page("/segments/$segmentId", () => import("./pages/segments.tsx"), "OneSegment"),
    page("/fields", () => import("./pages/fields.tsx"), "Page"),
    page("/imports", () => import("./pages/imports.tsx"), "Imports"),
    page("/imports/$importId", () => import("./pages/imports.tsx"), "OneImport"),
    page("/suppressions", () => import("./pages/suppressions.tsx"), "Page"),
    page("/accounts", () => import("./pages/accounts.tsx"), "Accounts"),
    page("/accounts/$accountId", () => import("./pages/accounts.tsx"), "Account"),
    page("/domains", () => import("./pages/domains.tsx"), "Page"),
    page("/providers", () => import("./pages/providers.tsx"), "Page"),
    page("/webhooks", () => import("./pages/webhooks.tsx"), "Webhooks"),
    page("/webhooks/$webhookId", () => import("./pages/webhooks.tsx"), "Webhook"),
    page("/keys", () => import("./pages/keys.tsx"), "Page"),
    page("/deleted", () => import("./pages/bin.tsx"), "Page"),
    page("/members", () => import("./pages/members.tsx"), "Page"),
    page("/audit", () => import("./pages/audit.tsx"), "Page"),
    page("/usage", () => import("./pages/usage.tsx"), "Page"),
    page("/settings", () => import("./pages/settings.tsx"), "Page"),
    page("/brand", () => import("./pages/brand.tsx"), "Page"),
  ]),
]);

export const router = createRouter({
  routeTree: tree,
  basepath: "/console",
  defaultPendingComponent: () => <Loading like="page" />,
  defaultErrorComponent: Failed,
  // Search parameters are written plainly, so that a link reads well.
  parseSearch: (text) => Object.fromEntries(new URLSearchParams(text)),
  stringifySearch: (search) => {
    const given = Object.entries(search).filter(([, value]) => value !== undefined && value !== "");
    const text = new URLSearchParams(given as [string, string][]).toString();
    return text === "" ? "" : `?${text}`;
  },
});

declare module "@tanstack/react-router" {
  interface HistoryState {
    /** The page that asked for the sign-in. */
    page?: string;
  }
  interface Register {
    router: typeof router;
  }
}
