import { route as declare } from "../../api/rest/route.ts";

type Meta = Parameters<typeof declare>[0];

/** Declares a route of a test's own, which no document shows. */
export const route = (meta: Omit<Meta, "operationId" | "tag" | "description">) =>
  declare({ operationId: "test", tag: "Identity", description: meta.summary, ...meta });
