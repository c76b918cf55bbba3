import { PLANS, Team } from "../../db/entities/team.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError } from "../../domain/errors.ts";
import { PLAN_LIMIT_KEYS, PLAN_LIMITS, type PlanLimitKey } from "../../domain/teams/plans.ts";
import { changeTeam } from "../../domain/teams/teams.ts";
import { type Commands, command, OF_TEAM, option, type Parameter } from "../command.ts";
import { NONE, numberOrNone, oneOf } from "../options.ts";
import { type Outcome, teamOf } from "../session.ts";

const LIMITS = Object.fromEntries(
  PLAN_LIMIT_KEYS.map((key) => {
    const { counts, min, max } = PLAN_LIMITS[key];
    return [key, option("<number>", `${counts}; ${NONE} for no limit of the plan`, numberOrNone(min, max))];
  }),
) as Record<PlanLimitKey, Parameter<number | typeof NONE | undefined>>;

/** A team's plan and its limits. */
export const commands: Commands = {
  "plan:set": command(
    "change a team's plan and its limits; those not named stay as they are",
    { ...OF_TEAM, plan: option("<plan>", PLANS.join(" or "), oneOf(PLANS)), ...LIMITS },
    async (session, { team, plan, ...limits }) => {
      const teamId = await teamOf(session, { team });
      const given = PLAN_LIMIT_KEYS.filter((key) => limits[key] !== undefined);
      const patch = Object.fromEntries(given.map((key) => [key, limits[key] === NONE ? null : limits[key]]));
      if (!plan && given.length === 0) throw new ApiError("validation_failed", "Name a plan or a limit to set.");
      const changed = await transaction(session.orm.em, (em) =>
        changeTeam(em, teamId, { ...(plan && { plan }), ...patch }),
      );
      return shown(changed);
    },
  ),

  "plan:show": command("print a team's plan and its limits", OF_TEAM, async (session, options) =>
    shown(await session.orm.em.fork().findOneOrFail(Team, { id: await teamOf(session, options) })),
  ),
};

function shown({ id, plan, ...team }: Team): Outcome {
  const limits = Object.fromEntries(PLAN_LIMIT_KEYS.map((key) => [PLAN_LIMITS[key].name, team[key] ?? null]));
  const lines = Object.entries(limits).map(([name, limit]) => `${name}: ${limit ?? NONE}`);
  return { text: [`Team ${id} has the plan ${plan}`, ...lines].join("\n"), data: { team: { id, plan, limits } } };
}
