import { Member, PLANS, ROLES, Team, TRACKING_MODES } from "../../db/entities/team.ts";
import { transaction } from "../../db/transaction.ts";
import { unbindAddress } from "../../domain/access/identities.ts";
import { makeLink, signInUrl } from "../../domain/access/sessions.ts";
import { addMember, changeMember, changeTeam, createTeam } from "../../domain/teams/teams.ts";
import { argument, type Commands, command, LIMIT, OF_TEAM, option, required } from "../command.ts";
import { address, oneOf, recordName } from "../options.ts";
import { table, toJson } from "../output.ts";
import { teamOf } from "../session.ts";

const MEMBER = { member: required("<id>", "the member") };
const ROLE = { role: required("<role>", ROLES.join(", "), oneOf(ROLES)) };

/** Teams and their members. */
export const commands: Commands = {
  "team:create": command(
    "create a team and its owner",
    {
      name: required("<name>", "name of the team", recordName),
      ownerEmail: required("<address>", "address of its owner", address),
      ownerName: required("<name>", "name of its owner", recordName),
      plan: option("<plan>", PLANS.join(" or "), oneOf(PLANS), "BUSINESS"),
      timeZone: option("<zone>", "IANA zone in which send days are days", String, "UTC"),
    },
    async ({ orm }, { ownerEmail: email, ownerName, ...fields }) => {
      const { team, owner } = await transaction(orm.em, (em) =>
        createTeam(em, { ...fields, owner: { email, name: ownerName } }),
      );
      return {
        text: `Team ${team.id} with its owner ${owner.id}`,
        data: {
          team: { id: team.id, name: team.name, plan: team.plan, time_zone: team.timeZone },
          owner: { id: owner.id, role: owner.role },
        },
      };
    },
  ),

  "team:list": command("list the teams, the newest first", LIMIT, async ({ orm }, { limit }) => {
    const teams = await orm.em.fork().find(Team, {}, { orderBy: { id: "desc" }, limit });
    return {
      text: table(teams, "No team", {
        TEAM: ({ id }) => id,
        NAME: ({ name }) => name,
        PLAN: ({ plan }) => plan,
        "TIME ZONE": ({ timeZone }) => timeZone,
        CREATED: ({ createdAt }) => createdAt,
      }),
      data: {
        teams: teams.map(({ id, name, plan, timeZone, tracking, createdAt }) =>
          toJson({ id, name, plan, timeZone, tracking, createdAt }),
        ),
      },
    };
  }),

  "team:time-zone": command(
    "set the zone in which the team's send days are days; those who wait in sequences for a time or a day wait for its",
    { zone: argument("IANA time zone, such as Europe/Berlin"), ...OF_TEAM },
    async (session, { zone, ...options }) => {
      const id = await teamOf(session, options);
      const { timeZone } = await transaction(session.orm.em, (em) => changeTeam(em, id, { timeZone: zone }));
      return { text: `Team ${id} now has the time zone ${timeZone}`, data: { team: { id, time_zone: timeZone } } };
    },
  ),

  "team:tracking": command(
    "set of whom opens and clicks are counted; a newsletter or a campaign may say otherwise",
    {
      tracking: argument(
        "OFF, ALL (except people who denied it), or AGREED (only people who agreed)",
        oneOf(TRACKING_MODES),
      ),
      ...OF_TEAM,
    },
    async (session, { tracking, ...options }) => {
      const id = await teamOf(session, options);
      await transaction(session.orm.em, (em) => changeTeam(em, id, { tracking }));
      return {
        text: `Tracking is ${tracking} for team ${id}, from the next confirm on`,
        data: { team: { id, tracking } },
      };
    },
  ),

  "member:add": command(
    "add a person to a team",
    {
      ...OF_TEAM,
      email: required("<address>", "their address", address),
      name: required("<name>", "their name", recordName),
      ...ROLE,
    },
    async (session, { email, name, role, ...options }) => {
      const teamId = await teamOf(session, options);
      const { id } = await transaction(session.orm.em, (em) => addMember(em, teamId, { email, name, role }));
      return { text: `Member ${id} is ${role}`, data: { member: { id, role } } };
    },
  ),

  "member:list": command("list the members of a team", OF_TEAM, async (session, options) => {
    const teamId = await teamOf(session, options);
    const where = { teamId, removedAt: null };
    const members = await session.orm.em.fork().find(Member, where, { orderBy: { id: "asc" } });
    return {
      text: table(members, "No member", {
        MEMBER: ({ id }) => id,
        ROLE: ({ role }) => role,
        NAME: ({ name }) => name,
        EMAIL: ({ email }) => email,
        ADDED: ({ createdAt }) => createdAt,
      }),
      data: {
        team: teamId,
        members: members.map(({ id, role, name, email, createdAt }) => toJson({ id, role, name, email, createdAt })),
      },
    };
  }),

  "member:link": command(
    "print a link by which a member signs in to the console once, within 15 minutes, in any browser: for whom no mail reaches",
    MEMBER,
    async ({ orm, vault, env }, { member }) => {
      const url = signInUrl(vault, env.PUBLIC_URL, await makeLink(orm.em.fork(), member));
      return { text: url, data: { member: { id: member, url } } };
    },
  ),

  "member:unbind": command(
    "let another account of the OpenID Connect provider sign in with an address",
    { email: required("<address>", "the address of the last account", address) },
    async ({ orm }, { email }) => {
      await unbindAddress(orm.em, email, "member:unbind");
      return { text: `${email} is bound to no account`, data: { unbound: { email } } };
    },
  ),

  "member:role": command(
    "give a member another role; their keys follow at once",
    { ...MEMBER, ...ROLE },
    async ({ orm }, { member: id, role }) => {
      await transaction(orm.em, (em) => changeMember(em, id, { role }));
      return { text: `Member ${id} is ${role}`, data: { member: { id, role } } };
    },
  ),

  "member:remove": command(
    "take a member out of their team; their keys stop working",
    MEMBER,
    async ({ orm }, { member: id }) => {
      await transaction(orm.em, (em) => changeMember(em, id, { removedAt: new Date() }));
      return { text: `Member ${id} left`, data: { member: { id, removed: true } } };
    },
  ),
};
