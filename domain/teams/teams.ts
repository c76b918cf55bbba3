import { LockMode, raw } from "@mikro-orm/postgresql";
import { IANAZone } from "luxon";
import { Member, type Plan, type Role, Team } from "../../db/entities/team.ts";
import type { EntityManager } from "../../db/orm.ts";
import { ApiError, notFound, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { changesOf, type Patch } from "../patch.ts";
import { followTimeZone } from "../sequences/time-zone.ts";
import type { BrandFields } from "./brand.ts";
import type { PlanLimits } from "./plans.ts";

interface Person {
  email: string;
  name: string;
}

/** Postgres and ICU read old abbreviations such as IST differently. @throws {ApiError} `validation_failed` */
export function refuseOtherZone(name: string, param = "time_zone"): void {
  if (!IANAZone.isValidZone(name) || !(name.includes("/") || name.toUpperCase() === "UTC")) {
    throw new ApiError("validation_failed", `"${name}" is no IANA time zone; Europe/Berlin is one.`, { param });
  }
}

/** In the caller's transaction. */
export async function createTeam(
  em: EntityManager,
  { name, plan, timeZone, owner }: { name: string; plan: Plan; timeZone: string; owner: Person },
): Promise<{ team: Team; owner: Member }> {
  refuseOtherZone(timeZone);
  const team = em.create(Team, { id: newId("team"), name, plan, timeZone });
  // The entities hold IDs, not relations, so the order of the inserts matters.
  await em.flush();
  const member = em.create(Member, { id: newId("member"), teamId: team.id, ...owner, role: "OWNER" });
  await em.flush();
  return { team, owner: member };
}

/**
 * A limit below what is in use deletes nothing; tracking holds for sends that are confirmed from now on. Those who wait in
 * sequences for a time of the former time zone wait for that of the new one.
 * @throws {ApiError} `not_found`; `validation_failed` when it is no IANA time zone
 */
export async function changeTeam(
  em: EntityManager,
  teamId: string,
  patch: Patch<PlanLimits & BrandFields & Pick<Team, "name" | "plan" | "timeZone" | "tracking">>,
): Promise<Team> {
  if (patch.timeZone !== undefined) refuseOtherZone(patch.timeZone);
  const team = await lockTeam(em, teamId);
  const { timeZone: formerZone } = team;
  em.assign(team, changesOf(patch));
  await em.flush();
  if (team.timeZone !== formerZone) await followTimeZone(em, teamId, team.timeZone);
  return team;
}

/** @throws {ApiError} `not_found` for the team; `resource_already_exists` when they are a member */
export async function addMember(
  em: EntityManager,
  teamId: string,
  { email, name, role }: Person & { role: Role },
): Promise<Member> {
  await lockTeam(em, teamId);
  if (await em.findOne(Member, { teamId, email, removedAt: null })) {
    throw new ApiError("resource_already_exists", "They are already a member; change their role instead.");
  }
  const member = em.create(Member, { id: newId("member"), teamId, email, name, role });
  await em.flush();
  return member;
}

/** A member who acts on others of their team; the operator acts on all, and is none. */
interface Actor {
  teamId: string;
  role: Role;
}

/** Members whom a team may invite in a day: each invite is a mail to an address of its choice. */
const INVITES_PER_DAY = 50;

/** @throws {ApiError} `role_insufficient` unless the actor is an OWNER, where one of the roles is */
function refuseOwnerTo(actor: Actor, ...roles: Role[]): void {
  if (actor.role === "OWNER" || !roles.includes("OWNER")) return;
  throw new ApiError("role_insufficient", "Only an OWNER may add, change or remove an OWNER.", { param: "role" });
}

/**
 * Adds a member, who gets a mail that says where to sign in.
 * @throws {ApiError} `role_insufficient`; `resource_limit_reached`; as `addMember`
 */
export async function inviteMember(em: EntityManager, actor: Actor, person: Person & { role: Role }): Promise<Member> {
  refuseOwnerTo(actor, person.role);
  const member = await addMember(em, actor.teamId, person);
  const lately = raw("now() - interval '1 day'");
  if ((await em.count(Member, { teamId: actor.teamId, createdAt: { $gt: lately } })) > INVITES_PER_DAY) {
    throw new ApiError(
      "resource_limit_reached",
      `A team may add ${INVITES_PER_DAY} members in a day; wait for the next.`,
    );
  }
  em.assign(member, { inviteDueAt: raw("now()") });
  await em.flush();
  return member;
}

/**
 * Their keys follow a new role, and stop working when they are removed.
 * @param actor a member of the same team; the operator unless given
 * @throws {ApiError} `not_found`; `role_insufficient`; `resource_state_invalid` for the last owner
 */
export async function changeMember(
  em: EntityManager,
  memberId: string,
  change: { role: Role } | { removedAt: Date },
  actor?: Actor,
): Promise<void> {
  const member = await lockMember(em, memberId, actor?.teamId);
  const staysOwner = "role" in change && change.role === "OWNER";
  if (actor) refuseOwnerTo(actor, member.role, ...("role" in change ? [change.role] : []));
  if (member.role === "OWNER" && !staysOwner) await refuseLastOwner(em, member.teamId);
  em.assign(member, change);
  await em.flush();
}

/** Changes of members wait for it, so that two owners cannot remove each other. @throws {ApiError} `not_found` */
export async function lockTeam(em: EntityManager, teamId: string): Promise<Team> {
  const team = await em.findOne(Team, { id: teamId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!team) throw new ApiError("not_found", `There is no team ${teamId}.`);
  return team;
}

async function lockMember(em: EntityManager, memberId: string, teamId?: string): Promise<Member> {
  const found = orNotFound(await em.findOne(Member, { id: memberId, ...(teamId !== undefined && { teamId }) }));
  await lockTeam(em, found.teamId);
  const member = await em.refreshOrFail(found);
  if (member.removedAt) throw notFound();
  return member;
}

async function refuseLastOwner(em: EntityManager, teamId: string): Promise<void> {
  const owners = await em.count(Member, { teamId, role: "OWNER", removedAt: null });
  if (owners <= 1) throw new ApiError("resource_state_invalid", "They are the team's last owner.");
}
