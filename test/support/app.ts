import type { AnyTRPCRouter } from "@trpc/server";
import { createApp } from "../../api/app.ts";
import { BASE_PATH } from "../../api/base-path.ts";
import { closeDeps, type Deps, openDeps } from "../../api/deps.ts";
import type { Method } from "../../api/rest/definition.ts";
import { route as declare } from "../../api/rest/route.ts";
import { appRouter } from "../../api/router.ts";
import { openServer, SERVER_TIMES, type ServerTimes } from "../../api/server.ts";
import type { Env } from "../../config/env.ts";
import { leaveUndocumented } from "./api.ts";
import { listenLocally } from "./listen-locally.ts";
import { stack } from "./stack.ts";

export interface TestApp {
  /** Base URL, with the version. */
  base: string;
  origin: string;
  deps: Deps;
  close(): Promise<void>;
}

/** In this process, over HTTP and the stack's Postgres; `changes` are settings, and `times` those of the server, that differ. */
export async function serveRoutes(
  routes: AnyTRPCRouter,
  {
    changes = {},
    with: replaced = {},
    times = {},
  }: { changes?: Partial<Env>; with?: Partial<Deps>; times?: Partial<ServerTimes> } = {},
): Promise<TestApp> {
  const { env } = await stack();
  const opened = await openDeps({ ...env, ...changes });
  if (replaced.orm) {
    // The vault gets its hash key from the pool that it was opened with.
    const failure = await opened.connectDatabase();
    await opened.orm.close(true);
    if (failure !== undefined) throw failure;
  }
  const deps = { ...opened, ...replaced };
  const app = createApp(deps, routes);
  const server = openServer(app, { ...deps, times: { ...SERVER_TIMES, ...times } });
  const origin = `http://127.0.0.1:${await listenLocally(server)}`;
  const base = `${origin}${BASE_PATH}`;
  if (routes !== appRouter) leaveUndocumented(base);
  return {
    base,
    origin,
    deps,
    close: async () => {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
      await closeDeps(deps);
      if (replaced.orm) await opened.orm.close(true);
    },
  };
}

type Meta = Parameters<typeof declare>[1] & { method: Method; path: `/${string}` };

/** Declares a route of a test's own, which no document shows. */
export const route = ({ method, path, ...meta }: Omit<Meta, "operationId" | "description">) =>
  declare(`${method} ${path}`, { operationId: "test", description: meta.summary, ...meta });
