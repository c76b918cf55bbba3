import { type Command, InvalidArgumentError, Option } from "commander";
import { PLANS, type Plan, type Team } from "../../db/entities/team.ts";
import { transaction } from "../../db/transaction.ts";
import { ApiError } from "../../domain/errors.ts";
import { PLAN_LIMIT_KEYS, PLAN_LIMITS, type PlanLimitKey, type PlanLimits, setPlan } from "../../domain/teams/plans.ts";
import { oneOf, wholeNumber, withTeam } from "../options.ts";
import { type Run, type TeamOption, teamOf } from "../session.ts";

/** Lifts a limit of a plan: commander takes null for an option without a value. */
const NONE = "none";

interface PlanOptions extends TeamOption, Partial<Record<PlanLimitKey, number | typeof NONE>> {
  plan?: Plan;
}

/** Sets a team's plan and its limits. */
export function planCommands(program: Command, run: Run): void {
  const command = withTeam(program.command("plan:set"))
    .description("change a team's plan and its limits; those not named stay as they are")
    .addOption(new Option("--plan <plan>", PLANS.join(" or ")).argParser(oneOf(PLANS)));
  for (const key of PLAN_LIMIT_KEYS) {
    const { counts, min, max } = PLAN_LIMITS[key];
    command.option(`${flagOf(key)} <number>`, `${counts}; ${NONE} for no limit of the plan`, numberOrNone(min, max));
  }
  command.action((options: PlanOptions) =>
    run(async (session) => {
      const teamId = await teamOf(session, options);
      const patch = patchOf(options);
      if (Object.keys(patch).length === 0) throw new ApiError("validation_failed", "Name a plan or a limit to set.");
      const changed = await transaction(session.orm.em, (em) => setPlan(em, teamId, patch));
      return { text: describe(changed), data: { team: { id: teamId, plan: changed.plan, limits: limitsOf(changed) } } };
    }),
  );
}

/** `--contact-slots` for `contactSlots`, the name among the parsed options. */
const flagOf = (key: string): string => `--${key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`)}`;

const numberOrNone = (min: number, max: number) => (text: string) => {
  if (text === NONE) return NONE;
  try {
    return wholeNumber(min, max)(text);
  } catch {
    throw new InvalidArgumentError(`It is a whole number from ${min} to ${max}, or ${NONE}.`);
  }
};

function patchOf({ plan, ...options }: PlanOptions): Partial<PlanLimits & { plan: Plan }> {
  const limits = PLAN_LIMIT_KEYS.flatMap((key) => {
    const value = options[key];
    return value === undefined ? [] : [[key, value === NONE ? null : value] as const];
  });
  return { ...(plan && { plan }), ...Object.fromEntries(limits) };
}

const limitsOf = (team: Team): Record<string, number | null> =>
  Object.fromEntries(PLAN_LIMIT_KEYS.map((key) => [PLAN_LIMITS[key].name, team[key] ?? null]));

const describe = (team: Team): string =>
  [
    `Team ${team.id} has the plan ${team.plan}`,
    ...PLAN_LIMIT_KEYS.map((key) => `${PLAN_LIMITS[key].name}: ${team[key] ?? NONE}`),
  ].join("\n");
