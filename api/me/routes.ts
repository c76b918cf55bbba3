import { z } from "zod";
import { ok, route, router } from "../rest/route.ts";
import { presentIdentity } from "./present.ts";
import { identity } from "./schema.ts";

const getMe = route({
  method: "GET",
  path: "/me",
  scope: null,
  summary: "Retrieve the API key or OAuth token of the request: its team, its scopes and its API version",
})
  .input(z.strictObject({}))
  .output(identity)
  .query(async ({ ctx }) => ok(presentIdentity(ctx.access)));

export const meRouter = router({ get: getMe });
