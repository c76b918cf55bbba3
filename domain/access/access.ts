import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import type { Plan, Role } from "../../db/entities/team.ts";
import type { Tenant } from "../../db/orm.ts";
import { ApiError } from "../errors.ts";
import { isScope, refuseForbiddenPairs, roleHolds, SCOPES, type Scope, SEND_SCOPES } from "./scopes.ts";

interface CallerFacts {
  /** Requests are counted and take turns by it: the id of a key's record, `<team id>/oauth_<client_id>` for a token. */
  id: string;
  /** The part of the credential that may be shown: `mk_live_<id>`, or `oauth_<client_id>`. */
  keyId: string;
  environment: Environment;
  /** The member who minted the key, or whom the token acts for. */
  memberId: string;
  /** Within the team, remembered answers that hold a secret belong to it: a key's lineage, or an OAuth client. */
  lineageId: string;
  /** The version for requests that name none. */
  apiVersion: string;
}

/** The API key of a request, as its record is now. */
export interface AccessKey extends CallerFacts {
  kind: "api_key";
  roleAtIssue: Role;
  sendDomains: string[];
  /** The list that each newsletter of the key targets from the start. */
  forListId: string | null;
  requiresApproval: boolean;
  /** Of the sessions of its member in the console, and of no program. */
  isOfSessions: boolean;
  dailySendCap: number;
}

/** The OAuth token of a request, as its claims are. */
export interface AccessToken extends CallerFacts {
  kind: "oauth_token";
  /** The `jti` claim, by which it can be revoked. */
  tokenId: string;
}

/** A member who is signed in to the console. */
export interface AccessSession extends CallerFacts {
  kind: "session";
}

export type Caller = AccessKey | AccessToken | AccessSession;

/** A request's caller, its team, and the scopes it has now. */
export interface Access<C extends Caller = Caller> {
  caller: C;
  team: { id: string; name: string; timeZone: string };
  tenant: Tenant;
  /** The role of the caller's member now. */
  role: Role;
  /** Those of `grantedScopes` that the role still holds. */
  scopes: Scope[];
  /** As minted, or as in the token, without those that a token cannot hold. */
  grantedScopes: Scope[];
}

/** The member of a caller and the member's team: they decide on the caller's rights. */
export interface MemberFacts {
  team_id: string;
  team_name: string;
  plan: Plan;
  time_zone: string;
  /** Requests that the plan allows each caller in a minute; null where it leaves that to the deployment. */
  requests_per_minute: number | null;
  role: Role;
  member_left: boolean;
}

/** SQL: the columns of `MemberFacts`, of `members as member` and `teams as team`. */
export const MEMBER_FACTS = [
  "team.id as team_id",
  "team.name as team_name",
  "team.plan",
  "team.time_zone",
  "team.requests_per_minute",
  "member.role",
  sql<boolean>`member.removed_at is not null`.as("member_left"),
] as const;

const API_PLAN: Plan = "BUSINESS";

/** A caller's member, as messages name it. */
const MEMBER: Record<Caller["kind"], string> = {
  api_key: "The member who created this key",
  oauth_token: "The member whom this token acts for",
  session: "The member who is signed in",
};

/** The scopes of a session: those of its member's role, without the send tier. */
export const sessionScopes = (role: Role): Scope[] =>
  SCOPES.filter((scope) => roleHolds(role, scope) && !SEND_SCOPES.includes(scope));

const RANK: readonly Role[] = ["VIEWER", "EDITOR", "ADMIN", "OWNER"];

/** Lets a request pass whose member has at least this role. @throws {ApiError} `role_insufficient` */
export function requireRole({ role }: Pick<Access, "role">, least: Role): void {
  if (RANK.indexOf(role) >= RANK.indexOf(least)) return;
  throw new ApiError("role_insufficient", `You are ${role} in this team; this needs the role ${least}.`);
}

/**
 * The access of a caller whose credential is good.
 * @param granted scopes as minted, or as the token claims them
 * @throws {ApiError} in this order: for the plan, a member who left, a forbidden pair of scopes
 */
export function accessFor<C extends Caller>(caller: C, holder: MemberFacts, granted: readonly string[]): Access<C> {
  if (holder.plan !== API_PLAN) throw new ApiError("plan_upgrade_required");
  if (holder.member_left) throw new ApiError("role_insufficient", `${MEMBER[caller.kind]} has left the team.`);

  // A scope that was withdrawn from the list since the key was minted grants nothing.
  const known = granted.filter(isScope);
  const isHeld = (scope: Scope) => roleHolds(holder.role, scope);
  refuseForbiddenPairs(known.filter(isHeld));
  const grantedScopes = known.filter((scope) => caller.kind === "api_key" || !SEND_SCOPES.includes(scope));
  return {
    caller,
    team: { id: holder.team_id, name: holder.team_name, timeZone: holder.time_zone },
    tenant: { teamId: holder.team_id, environment: caller.environment },
    role: holder.role,
    scopes: grantedScopes.filter(isHeld),
    grantedScopes,
  };
}

/**
 * Lets a request pass that needs any one of some scopes.
 * @throws {ApiError} `insufficient_scope`; `role_insufficient` for a granted one that the member's role no longer holds
 */
export function requireScope({ caller, scopes, grantedScopes, role }: Access, ...anyOf: [Scope, ...Scope[]]): void {
  if (anyOf.some((scope) => scopes.includes(scope))) return;
  if (!anyOf.some((scope) => grantedScopes.includes(scope))) throw insufficientScope(caller, anyOf);
  const named = anyOf.join(" or ");
  throw new ApiError("role_insufficient", `${MEMBER[caller.kind]} is ${role} now, which does not hold ${named}.`);
}

function insufficientScope({ kind }: Caller, anyOf: readonly [Scope, ...Scope[]]): ApiError {
  if (kind === "session") {
    return new ApiError("role_insufficient", `Your role in this team does not hold ${anyOf.join(" or ")}.`);
  }
  const named = `This needs the scope ${anyOf.join(" or ")}`;
  if (kind === "api_key") return new ApiError("insufficient_scope", `${named}, which the key was not granted.`);
  return anyOf.every((scope) => SEND_SCOPES.includes(scope))
    ? new ApiError("insufficient_scope", `${named}, which no OAuth client can hold; use an API key.`)
    : new ApiError("insufficient_scope", `${named}, which the token does not hold.`);
}

/** The API key of a request that only a key can make. @throws {ApiError} `insufficient_scope` for an OAuth client */
export function requireApiKey({ caller }: Access, scope: Scope): AccessKey {
  if (caller.kind === "api_key") return caller;
  throw insufficientScope(caller, [scope]);
}
