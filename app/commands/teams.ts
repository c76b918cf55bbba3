import { type Command, Option } from "commander";
import { PLANS, type Plan, ROLES, type Role } from "../../db/entities/team.ts";
import { transaction } from "../../db/transaction.ts";
import {
  addMember,
  changeRole,
  createTeam,
  removeMember,
  setTeamTracking,
  setTimeZone,
} from "../../domain/teams/teams.ts";
import { address, oneOf, recordName, withTeam } from "../options.ts";
import { type Run, type TeamOption, teamOf } from "../session.ts";

const SWITCHES = ["on", "off"] as const;
type Switch = (typeof SWITCHES)[number];

interface CreateOptions {
  name: string;
  ownerEmail: string;
  ownerName: string;
  plan: Plan;
  timeZone: string;
}

/** Teams and their members. */
export function teamCommands(program: Command, run: Run): void {
  program
    .command("team:create")
    .description("create a team and its owner")
    .requiredOption("--name <name>", "name of the team", recordName)
    .requiredOption("--owner-email <address>", "address of its owner", address)
    .requiredOption("--owner-name <name>", "name of its owner", recordName)
    .addOption(new Option("--plan <plan>", PLANS.join(" or ")).default("BUSINESS").argParser(oneOf(PLANS)))
    .option("--time-zone <zone>", "IANA zone in which send days are days", "UTC")
    .action(({ name, ownerEmail, ownerName, plan, timeZone }: CreateOptions) =>
      run(async ({ orm }) => {
        const { team, owner } = await transaction(orm.em, (em) =>
          createTeam(em, { name, plan, timeZone, owner: { email: ownerEmail, name: ownerName } }),
        );
        return {
          text: `Team ${team.id} with its owner ${owner.id}`,
          data: {
            team: { id: team.id, name: team.name, plan: team.plan, time_zone: team.timeZone },
            owner: { id: owner.id, role: owner.role },
          },
        };
      }),
    );

  withTeam(program.command("team:time-zone"))
    .description("set the zone in which the team's send days are days")
    .argument("<zone>", "IANA time zone, such as Europe/Berlin")
    .action((zone: string, options: TeamOption) =>
      run(async (session) => {
        const teamId = await teamOf(session, options);
        const team = await transaction(session.orm.em, (em) => setTimeZone(em, teamId, zone));
        return {
          text: `Team ${team.id} now has the time zone ${team.timeZone}`,
          data: { team: { id: team.id, time_zone: team.timeZone } },
        };
      }),
    );

  withTeam(program.command("team:tracking"))
    .description("count opens and clicks of the team's mails, or not; a newsletter or a campaign may say otherwise")
    .argument("<switch>", SWITCHES.join(" or "), oneOf(SWITCHES))
    .action((state: Switch, options: TeamOption) =>
      run(async (session) => {
        const teamId = await teamOf(session, options);
        await transaction(session.orm.em, (em) => setTeamTracking(em, teamId, state === "on"));
        return {
          text: `Tracking is ${state} for team ${teamId}, from the next confirm on`,
          data: { team: { id: teamId, tracking: state === "on" } },
        };
      }),
    );

  withTeam(program.command("member:add"))
    .description("add a person to a team")
    .requiredOption("--email <address>", "their address", address)
    .requiredOption("--name <name>", "their name", recordName)
    .requiredOption("--role <role>", ROLES.join(", "), oneOf(ROLES))
    .action(({ email, name, role, ...options }: TeamOption & { email: string; name: string; role: Role }) =>
      run(async (session) => {
        const teamId = await teamOf(session, options);
        const member = await transaction(session.orm.em, (em) => addMember(em, teamId, { email, name, role }));
        return { text: `Member ${member.id} is ${role}`, data: { member: { id: member.id, role } } };
      }),
    );

  program
    .command("member:role")
    .description("give a member another role; their keys follow at once")
    .requiredOption("--member <id>", "the member")
    .requiredOption("--role <role>", ROLES.join(", "), oneOf(ROLES))
    .action(({ member: id, role }: { member: string; role: Role }) =>
      run(async ({ orm }) => {
        await transaction(orm.em, (em) => changeRole(em, id, role));
        return { text: `Member ${id} is ${role}`, data: { member: { id, role } } };
      }),
    );

  program
    .command("member:remove")
    .description("take a member out of their team; their keys stop working")
    .requiredOption("--member <id>", "the member")
    .action(({ member: id }: { member: string }) =>
      run(async ({ orm }) => {
        await transaction(orm.em, (em) => removeMember(em, id));
        return { text: `Member ${id} left`, data: { member: { id, removed: true } } };
      }),
    );
}
