import { z } from "zod";
import { DEFAULT_DAYS, MAX_DAYS, readOverview, refuseUnknownResource } from "../../domain/analytics/overview.ts";
import { QUIET_SECONDS } from "../../domain/tracking/label.ts";
import { ok, paragraphs, route, router } from "../rest/route.ts";
import { presentOverview } from "./present.ts";
import { analyticsOverview, overviewQuery } from "./schema.ts";

const overview = route("GET /analytics/overview", {
  scope: "analytics:read",
  operationId: "retrieveAnalyticsOverview",
  summary: "Retrieve the outcomes of the mails of a range of days",
  description: paragraphs(
    `Answers counts and rates of the days from \`from\` to \`to\`, and the counts of each day, in UTC: of the environment of the key, or with \`resource_id\` of one newsletter or campaign. A range holds at most ${MAX_DAYS} days; without \`from\` it is ${DEFAULT_DAYS} days long, without \`to\` it ends today. A day that has not come has zeros.`,
    "`sent`, `delivered`, the bounces, `complained`, the opens and the clicks belong to the day on which the mail was accepted, also when they come days later. `rejected`, `suppressed`, `unknown` and `unsubscribed` belong to the day on which they happened. A mail counts under its latest outcome: an unknown one that proves sent, by a late answer or because it bounced or was opened, counts as sent from then on.",
    `A mail with both kinds of bounces counts as a hard one. Opens and clicks are counted for mails that were sent with tracking, which is off by default and turned on for a team, a newsletter or a campaign, for all of its people or for [those who agreed](/docs/sending#consent-to-be-tracked): those mails are \`tracked\`. \`opened\` and \`clicked\` leave out those of machines, which stand beside them; an open or a click counts about ${QUIET_SECONDS} seconds after it. Recipients whose mails expired or were cancelled are counted by the newsletter alone.`,
  ),
  errors: ["not_found"],
})
  .input(z.strictObject({ query: overviewQuery }))
  .output(analyticsOverview)
  .query(async ({ ctx, input }) => {
    const { resource_id: resourceId, ...range } = input.query;
    if (resourceId !== undefined) await refuseUnknownResource(ctx.em, ctx.tenant, resourceId);
    const resourceIds = resourceId === undefined ? undefined : [resourceId];
    return ok(presentOverview(await readOverview(ctx.em, ctx.tenant, { ...range, resourceIds })));
  });

export const analyticsRouter = router({ overview });
