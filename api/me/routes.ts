import { z } from "zod";
import { ok, paragraphs, route, router } from "../rest/route.ts";
import { presentIdentity } from "./present.ts";
import { identity } from "./schema.ts";

const retrieve = route("GET /me", {
  scope: null,
  operationId: "retrieveMe",
  summary: "Retrieve the API key or OAuth token of the request: its team, its scopes and its API version",
  description: paragraphs(
    "Answers which key or token the request carries: its team, its environment, the scopes it has at this moment and the dated version it is pinned to. It needs no scope, so that a client can learn its own scopes.",
    "`granted_scopes` are those of the key's creation; `scopes` are those of them that the role of its creator still allows.",
  ),
})
  .input(z.strictObject({}))
  .output(identity)
  .query(async ({ ctx }) => ok(presentIdentity(ctx.access)));

export const meRouter = router({ retrieve });
