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
      Object.fromEntries(Object.entries(search).map(([name, value]) => [name, String(value)])),
    component: lazyRouteComponent(load, "Page"),
  });

const tree = root.addChildren([
  createRoute({ getParentRoute: () => root, path: "/", component: Teams }),
  createRoute({ getParentRoute: () => root, path: "/sign-in", component: SignIn }),
  frame.addChildren([
    page("/", () => import("./pages/overview.tsx")),
    page("/lists", () => import("./pages/lists.tsx")),
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
