import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import type { Role } from "../../db/entities/team.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { CURRENT_API_VERSION } from "../api-version.ts";
import { ApiError } from "../errors.ts";
import { newId } from "../ids.ts";
import { awaitHashKey } from "../secrets/admission.ts";
import type { Vault } from "../secrets/crypto.ts";
import { type Access, type AccessKey, type AccessSession, MEMBER_FACTS, sessionScopes } from "./access.ts";
import type { Admitted, CallerSummary, RequestOrigin } from "./authenticate.ts";
import { readAccess } from "./key-lookup.ts";
import { defineLookup } from "./request-limit.ts";
import { roleHolds, type Scope, SEND_SCOPES } from "./scopes.ts";
import { keyOfSessions } from "./session-key.ts";

/*
 * The console's sign-in: a link in a mail, then a cookie with a random token, of which the database holds a hash. A session
 * belongs to a person, by their address: each request names the team, where the person must be a member at that moment.
 */

export const LINK_MINUTES = 15;
/** A link that works for so long yet also serves browsers that ask later. */
const SHARED_MINUTES = 5;
const IDLE_HOURS = 12;
export const SESSION_DAYS = 7;
/** A session's last use is written when it is older than this. */
const USE_MINUTES = 5;

const IS_OPEN = sql<boolean>`expires_at > clock_timestamp() and last_used_at > clock_timestamp() - make_interval(hours => ${IDLE_HOURS})`;

const sessionEnded = () => new ApiError("api_key_invalid", "The session has ended; sign in again.");

/** Random, for a cookie. */
export const newCookieToken = (): string => randomBytes(32).toString("base64url");

/** Where members open the console. */
export const consoleUrl = (publicUrl: string): string => `${publicUrl}/console`;

/** The link with its token, which is the row's id and a signature of it. It stands behind `#`, so that no server logs it. */
export const signInUrl = (vault: Vault, publicUrl: string, id: string): string =>
  `${consoleUrl(publicUrl)}/sign-in#${id}.${vault.sign("sign-in", id)}`;

/**
 * Asks for a link by mail. While an earlier one works there is no further mail, and it signs in this browser, too: requests of
 * others neither fill a mailbox nor lock its owner out. An address that no member has takes the same statement, and no row.
 * @param email as addresses are compared @param browser the token in the cookie of the browser that asks
 */
export async function requestLink(em: EntityManager, vault: Vault, email: string, browser: string): Promise<void> {
  await sql`
    with time as (
      select clock_timestamp() as now, exists (
        select from sign_in_links where email = ${email} and browser_hash is not null and used_at is null
          and expires_at > clock_timestamp() + make_interval(mins => ${SHARED_MINUTES})) as is_sent
    )
    insert into sign_in_links (id, email, browser_hash, mail_due_at, used_at, expires_at)
    select ${newId("signInLink")}, ${email}, ${vault.hash("session", browser)}, case when not is_sent then now end,
      case when is_sent then now end, now + make_interval(mins => ${LINK_MINUTES})
    from time where exists (select from members where email = ${email} and removed_at is null)`.execute(kysely(em));
}

/** A link that any browser may open once, for an operator to hand over. @returns its id @throws {ApiError} `not_found` */
export async function makeLink(em: EntityManager, memberId: string): Promise<string> {
  const id = newId("signInLink");
  const { rows } = await sql`insert into sign_in_links (id, email, expires_at)
    select ${id}, email, clock_timestamp() + make_interval(mins => ${LINK_MINUTES})
    from members where id = ${memberId} and removed_at is null returning id`.execute(kysely(em));
  if (rows.length === 0) throw new ApiError("not_found", `There is no member ${memberId}.`);
  return id;
}

/**
 * Uses a link up, and opens a session.
 * @param browser the token in the cookie of a browser that asked for a link to this address @returns the session's token, for its cookie
 * @throws {ApiError} `api_key_invalid` for a link that is unknown, used, late, or in another browser
 */
export async function openSession(
  em: EntityManager,
  vault: Vault,
  { link, browser }: { link: string; browser: string | undefined },
): Promise<string> {
  const [id = "", signature = "", ...rest] = link.split(".");
  const refused = new ApiError(
    "api_key_invalid",
    `The link was used, is older than ${LINK_MINUTES} minutes, or was asked for in another browser; ask for a new one here.`,
  );
  if (rest.length > 0 || !vault.verify(signature, "sign-in", id)) throw refused;
  const browserHash = browser === undefined ? "" : vault.hash("session", browser);
  const token = newCookieToken();
  const { rows } = await sql`
    with used as (
      update sign_in_links l set used_at = clock_timestamp()
      where id = ${id} and used_at is null and expires_at > clock_timestamp() and (browser_hash is null or exists (
        select from sign_in_links a
        where a.email = l.email and a.browser_hash = ${browserHash} and a.expires_at > clock_timestamp()))
      returning email
    )
    insert into console_sessions (token_hash, email, last_used_at, expires_at)
    select ${vault.hash("session", token)}, email, clock_timestamp(),
      clock_timestamp() + make_interval(days => ${SESSION_DAYS})
    from used returning email`.execute(kysely(em));
  if (rows.length === 0) throw refused;
  return token;
}

/** Ends a session, or with `everywhere` all of the person's, unless this one has ended. */
export async function endSession(em: EntityManager, vault: Vault, token: string, everywhere: boolean): Promise<void> {
  const hash = vault.hash("session", token);
  const own = sql`token_hash = ${hash}`;
  const all = sql`email = (select email from console_sessions where token_hash = ${hash} and ${IS_OPEN})`;
  await sql`delete from console_sessions where ${everywhere ? all : own}`.execute(kysely(em));
}

export interface SessionTeam {
  id: string;
  name: string;
  role: Role;
  timeZone: string;
  plan: string;
}

/** The person of a session and the teams that it may open. @throws {ApiError} `api_key_invalid` when it has ended */
export async function readSession(
  em: EntityManager,
  vault: Vault,
  token: string,
): Promise<{ email: string; teams: SessionTeam[] }> {
  const { rows } = await sql<{ email: string; teams: SessionTeam[] }>`
    select s.email, coalesce((
      select json_agg(json_build_object('id', t.id, 'name', t.name, 'role', m.role, 'timeZone', t.time_zone,
        'plan', t.plan) order by t.name, t.id)
      from members m join teams t on t.id = m.team_id
      where m.email = s.email and m.removed_at is null), '[]') as teams
    from console_sessions s where token_hash = ${vault.hash("session", token)} and ${IS_OPEN}`.execute(kysely(em));
  const [session] = rows;
  if (!session || session.teams.length === 0) throw sessionEnded();
  return session;
}

const sessionLookup = defineLookup({
  query: (em, { tokenHash, teamId }: { tokenHash: string; teamId: string }) =>
    kysely(em)
      .selectFrom("console_sessions as session")
      .innerJoin("members as member", "member.email", "session.email")
      .innerJoin("teams as team", "team.id", "member.team_id")
      .where("session.token_hash", "=", tokenHash)
      .where(IS_OPEN)
      .where("member.team_id", "=", teamId)
      .where("member.removed_at", "is", null)
      .select([
        "member.id as member_id",
        ...MEMBER_FACTS,
        sql<boolean>`session.last_used_at < clock_timestamp() - make_interval(mins => ${USE_MINUTES})`.as("is_use_old"),
      ]),
  callerId: () => sql`member_id`,
  isGood: () => sql`true`,
});

/** Cookie and headers of a request of the console. */
export interface SessionRequest {
  /** Of the cookie. */
  token: string | undefined;
  teamId: string;
  environment: Environment;
}

/**
 * The access of a request with a session, counted by its member. Where the route needs a scope of the send tier, it is the
 * access of the member's key for sessions.
 * @throws {ApiError} `api_key_missing`; `api_key_invalid`, also for a team that the person is no member of; as `authenticate`
 */
export function authenticateSession(
  em: EntityManager,
  vault: Vault,
  { token, teamId, environment }: SessionRequest,
  { limits, clientAddress, onCallerKnown }: RequestOrigin,
  scope: Scope | null,
): Promise<Admitted> {
  const identify = async (address: string | null): Promise<Admitted> => {
    if (token === undefined) throw new ApiError("api_key_missing", "Sign in first.");
    await awaitHashKey(em, vault);
    const tokenHash = vault.hash("session", token);
    const name = { clientAddress: address, credential: `${tokenHash} ${teamId}` };
    const found = await limits.findAndCount(em, name, sessionLookup, { tokenHash, teamId });
    if (!found) throw sessionEnded();
    const { row, allowance, refused } = found;
    onCallerKnown({ allowance, apiVersion: CURRENT_API_VERSION } satisfies CallerSummary);
    if (refused) throw refused;
    if (row.is_use_old) {
      await sql`update console_sessions set last_used_at = clock_timestamp() where token_hash = ${tokenHash}`.execute(
        kysely(em.fork()),
      );
    }
    const tenant = { teamId: row.team_id, environment };
    if (scope !== null && SEND_SCOPES.includes(scope)) {
      const access = await accessToSend(em, vault, tenant, { memberId: row.member_id, role: row.role }, scope);
      return { ...access, allowance };
    }
    const caller: AccessSession = {
      kind: "session",
      id: row.member_id,
      keyId: row.member_id,
      environment,
      memberId: row.member_id,
      lineageId: row.member_id,
      apiVersion: CURRENT_API_VERSION,
    };
    const scopes = sessionScopes(row.role);
    const team = { id: row.team_id, name: row.team_name, timeZone: row.time_zone };
    return { caller, team, tenant, role: row.role, scopes, grantedScopes: scopes, allowance };
  };
  return limits.limitFailures(em, clientAddress, identify, token === undefined ? undefined : `${token} ${teamId}`);
}

/**
 * The access of the member's key for sessions. @throws {ApiError} `role_insufficient`; as `keyOfSessions` and `readAccess`
 */
export async function accessToSend(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  member: { memberId: string; role: Parameters<typeof roleHolds>[0] },
  scope: Scope,
): Promise<Access<AccessKey>> {
  if (!roleHolds(member.role, scope)) {
    throw new ApiError("role_insufficient", `You are ${member.role} in this team; an ADMIN or the OWNER can send.`);
  }
  const { id } = await keyOfSessions(em.fork(), vault, tenant, member.memberId);
  return readAccess(em, tenant, id, scope);
}
