import type { Command } from "commander";
import { recountFigures } from "../../domain/analytics/recount.ts";
import { withTenant } from "../options.ts";
import { inTenant, type Run, type TenantOptions, tenantOf } from "../session.ts";

interface RecountOptions extends TenantOptions {
  repair: boolean;
}

/** Compares the figures of analytics with the facts. */
export function analyticsCommands(program: Command, run: Run): void {
  withTenant(program.command("analytics:recount"))
    .description("count the facts behind a team's analytics anew, and list the figures that differ")
    .option("--repair", "correct the figures that differ", false)
    .action(({ repair, ...options }: RecountOptions) =>
      run(async (session) => {
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
      }),
    );
}
