import { recountFigures } from "../../domain/analytics/recount.ts";
import { type Commands, command, flag, OF_TENANT } from "../command.ts";
import { inTenant, tenantOf } from "../session.ts";

/** Compares the figures of analytics with the facts. */
export const commands: Commands = {
  "analytics:recount": command(
    "count the facts behind a team's analytics anew, and list the figures that differ",
    { ...OF_TENANT, repair: flag("correct the figures that differ") },
    async (session, { repair, ...options }) => {
      const tenant = await tenantOf(session, options);
      const differences = await inTenant(session, tenant, (em) => recountFigures(em, tenant, { repair }));
      const lines = differences.map(
        ({ resourceId, day, figure, kept, counted }) =>
          `${resourceId || "no newsletter"} ${day} ${figure}: kept ${kept}, counted ${counted}`,
      );
      const summary = `${differences.length} figures differ${repair && differences.length > 0 ? "ed and are corrected" : ""}`;
      return {
        text: [...lines, summary].join("\n"),
        data: {
          team: tenant.teamId,
          repaired: repair,
          differences: differences.map(({ resourceId, ...rest }) => ({ resource_id: resourceId || null, ...rest })),
        },
      };
    },
  ),
};
