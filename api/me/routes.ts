import { z } from "zod";
import { ok, route, router } from "../rest/route.ts";
import { presentKey } from "./present.ts";
import { apiKey } from "./schema.ts";

const getMe = route({
  method: "GET",
  path: "/me",
  scope: null,
  summary: "Retrieve the API key of the request: its team, its scopes and its API version",
})
  .input(z.strictObject({}))
  .output(apiKey)
  .query(async ({ ctx }) => ok(presentKey(ctx.access)));

export const meRouter = router({ get: getMe });
