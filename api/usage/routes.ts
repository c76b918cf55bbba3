import { z } from "zod";
import { readUsage } from "../../domain/teams/usage.ts";
import { ok, paragraphs, route, router } from "../rest/route.ts";
import { presentUsage } from "./present.ts";
import { usage } from "./schema.ts";

const retrieve = route("GET /usage", {
  scope: "usage:read",
  operationId: "retrieveUsage",
  summary: "Retrieve the use of each limit",
  description: paragraphs(
    "Answers each limit of the team's plan and of the calling key, how much of it is used, and how much is left. Figures are those of the key's environment.",
    "Credits count within the period, requests within the minute and sends within the day. Contact slots and webhook endpoints are those in use now.",
  ),
})
  .input(z.strictObject({}))
  .output(usage)
  .query(async ({ ctx }) => ok(presentUsage(await readUsage(ctx.em, ctx.tenant, ctx.access))));

export const usageRouter = router({ retrieve });
