import { ENVIRONMENTS } from "../../db/entities/shared.ts";
import { ApiError } from "../../domain/errors.ts";
import { newId } from "../../domain/ids.ts";
import { findSend } from "../../domain/sends/operators/inspection.ts";
import { grantCredits, listCreditEntries, readCreditBalance, readCreditUsage } from "../../domain/teams/credits.ts";
import { type Commands, command, OF_TEAM, OF_TENANT, option, required } from "../command.ts";
import { nonEmpty, oneOf, wholeNumber } from "../options.ts";
import { inTenant, tenantOf } from "../session.ts";

/** Email credits of a team. */
export const commands: Commands = {
  "credits:grant": command(
    "give a team email credits",
    {
      ...OF_TENANT,
      amount: required("<credits>", "whole email credits", wholeNumber(1)),
      cause: option("<text>", "names the grant: a second one with the same cause changes nothing", nonEmpty),
    },
    async (session, { amount, cause = newId("creditEntry"), ...options }) => {
      const tenant = await tenantOf(session, options);
      const balance = await inTenant(session, tenant, async (em) => {
        await grantCredits(em, tenant, amount, cause);
        return readCreditBalance(em, tenant);
      });
      return {
        text: `${balance.available} credits available, ${balance.reserved} reserved`,
        data: { team: tenant.teamId, credits: { ...balance } },
      };
    },
  ),

  "credits:show": command(
    "print a team's email credits and their latest movements; with --send those of one send",
    {
      ...OF_TEAM,
      environment: option("<name>", "live or test; live unless given", oneOf(ENVIRONMENTS)),
      send: option("<id>", "a newsletter (nl_…), a campaign (cmp_…) or a send (send_…)"),
      limit: option("<number>", "so many movements at most", wholeNumber(1, 100_000), 20),
    },
    async (session, { send, limit, ...options }) => {
      const em = session.orm.em.fork();
      const found = send === undefined ? undefined : await findSend(em, send);
      const { team = found?.teamId, environment = found?.environment ?? "LIVE" } = options;
      if (found && (team !== found.teamId || environment !== found.environment)) {
        const owner = `team ${found.teamId}, ${found.environment.toLowerCase()}`;
        const message = `${found.sendId} is a send of ${owner}: leave out --team and --environment.`;
        throw new ApiError("validation_failed", message);
      }
      const tenant = await tenantOf(session, { team, environment });
      const { available, reserved, consumed } = await readCreditUsage(em, tenant);
      const entries = await listCreditEntries(em, tenant, { sendId: found?.sendId, limit });
      const lines = entries.map(
        ({ kind, amount, sendId, cause, at }) => `${at}  ${kind}  ${amount}  ${sendId ?? "-"}  ${cause}`,
      );
      return {
        text: [`${available} credits available, ${reserved} reserved, ${consumed} used this month`, ...lines].join(
          "\n",
        ),
        data: {
          team: tenant.teamId,
          environment,
          credits: { available, reserved, consumed },
          movements: entries.map(({ sendId, ...entry }) => ({ ...entry, send: sendId })),
        },
      };
    },
  ),
};
