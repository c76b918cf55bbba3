import { randomBytes } from "node:crypto";
import { sql } from "kysely";
import type { Environment } from "../../db/entities/shared.ts";
import { Member, type Plan, type Role, Team, type TrackingMode } from "../../db/entities/team.ts";
import { type EntityManager, forTenant, kysely, type MikroORM, openDatabase, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type KeyGrant, type MintedKey, mintKey } from "../../domain/access/keys.ts";
import { roleHolds, SCOPES, type Scope } from "../../domain/access/scopes.ts";
import { newId } from "../../domain/ids.ts";
import { openAdmitted } from "../../domain/secrets/admission.ts";
import { openVault, type Vault } from "../../domain/secrets/crypto.ts";
import type { PlanLimits } from "../../domain/teams/plans.ts";
import { changeTeam } from "../../domain/teams/teams.ts";
import { stack } from "./stack.ts";

export interface Backdoor {
  orm: MikroORM;
  vault: Vault;
}

let opened: Promise<Backdoor> | undefined;

/** The stack's database with a role of the settings: the owner's may do what the application's may not. */
export async function openStackDatabase(role: "owner" | "application", poolMax = 1): Promise<MikroORM> {
  const { DATABASE_URL, MIGRATION_DATABASE_URL } = (await stack()).env;
  if (MIGRATION_DATABASE_URL === undefined) throw new Error("the stack has no MIGRATION_DATABASE_URL");
  return openDatabase(role === "owner" ? MIGRATION_DATABASE_URL : DATABASE_URL, { poolMax });
}

export async function openStackVault(): Promise<Vault> {
  const { env } = await stack();
  const vault = openVault(env);
  const { orm, connect } = await openAdmitted(env, vault, { poolMax: 1 });
  const failure = await connect();
  await orm.close(true);
  if (failure !== undefined) throw failure;
  return vault;
}

async function openBackdoor(): Promise<Backdoor> {
  return { orm: await openStackDatabase("owner", 5), vault: await openStackVault() };
}

/** The stack's database, with its owner's role, and vault, for facts that a test writes or reads past the API. */
export function backdoor(): Promise<Backdoor> {
  opened ??= openBackdoor();
  return opened;
}

/** Runs SQL past the API. */
export const execute = async <Row = Record<string, unknown>>(statement: string, ...values: unknown[]): Promise<Row[]> =>
  (await backdoor()).orm.em.fork().execute<Row[]>(statement, values);

/** Closes the connections that the tests opened. */
export async function closeAll(): Promise<void> {
  await opened?.then(({ orm }) => orm.close(true)).catch(() => {});
}

export const unique = (prefix: string): string => `${prefix}-${randomBytes(6).toString("hex")}`;

export const uniqueEmail = (name = "person"): string => `${unique(name)}@example.com`;

const SENDS: readonly Scope[] = ["newsletters:send", "campaigns:send"];

export const scopesBesideSending = (role: Role): Scope[] =>
  SCOPES.filter((scope) => roleHolds(role, scope) && scope !== "suppressions:delete");

export const scopesBesideDeleting = (role: Role): Scope[] =>
  SCOPES.filter((scope) => roleHolds(role, scope) && !SENDS.includes(scope));

export interface TeamOptions {
  /** The stack's unless given. */
  database?: Backdoor;
  plan?: Plan;
  /** Of the member whose keys these are. */
  role?: Role;
  /** Of the keys; all that may stand together with sending unless given. */
  scopes?: readonly Scope[];
  sendDomains?: readonly string[];
  requiresApproval?: boolean;
  dailySendCap?: number;
  timeZone?: string;
}

export interface TestTeam {
  team: Team;
  /** The member whose keys these are. */
  owner: Member;
  /** As a client holds them. `cleanup` lifts suppressions and does not send. */
  keys: { live: string; test: string; cleanup: string };
  liveKey: MintedKey;
  testKey: MintedKey;
  /** Sees the LIVE rows of the team. */
  em: EntityManager;
  vault: Vault;
  /** Mints another key of the same member, LIVE by default. */
  mint(grant?: Partial<KeyGrant>): Promise<MintedKey>;
}

export const tenantOf = ({ team }: { team: { id: string } }): Tenant => ({ teamId: team.id, environment: "LIVE" });

export async function makeMember(em: EntityManager, teamId: string, role: Role): Promise<Member> {
  const member = em.create(Member, { id: newId("member"), teamId, email: uniqueEmail("member"), name: "Member", role });
  await em.flush();
  return member;
}

export async function makeTeam(options: TeamOptions = {}): Promise<TestTeam> {
  const { plan = "BUSINESS", role = "OWNER", scopes = scopesBesideSending(role), timeZone = "UTC" } = options;
  const { orm, vault } = options.database ?? (await backdoor());
  const teamId = newId("team");
  const em = forTenant(orm.em, { teamId, environment: "LIVE" });
  const team = em.create(Team, { id: teamId, name: unique("Team"), plan, timeZone });
  await em.flush();
  const owner = await makeMember(em, teamId, role);

  const { MAX_API_KEYS } = (await stack()).env;
  const mint: TestTeam["mint"] = (grant = {}) => {
    const whole: KeyGrant = {
      teamId,
      memberId: owner.id,
      environment: "LIVE" satisfies Environment,
      name: "test",
      scopes,
      sendDomains: options.sendDomains ?? ["example.com"],
      ...(options.requiresApproval === undefined ? {} : { requiresApproval: options.requiresApproval }),
      ...(options.dailySendCap === undefined ? {} : { dailySendCap: options.dailySendCap }),
      ...grant,
    };
    return transaction(em, (tx) => mintKey(tx, vault, whole, MAX_API_KEYS));
  };
  const liveKey = await mint();
  const testKey = await mint({ environment: "TEST" });
  const cleanup = await mint({ scopes: scopesBesideDeleting(role) });
  const keys = { live: liveKey.key, test: testKey.key, cleanup: cleanup.key };
  return { team, owner, keys, liveKey, testKey, em, vault, mint };
}

export async function setLimits({ em, team }: TestTeam, limits: Partial<PlanLimits>): Promise<void> {
  await transaction(em, (tx) => changeTeam(tx, team.id, limits));
}

/** Ended, past the service, so that no worker takes it up; the caller adds its recipients. @returns its id */
export async function recordSend(
  em: EntityManager,
  { teamId, environment }: Tenant,
  newsletterId: string,
  recipients: number,
  { tracking = "OFF" }: { tracking?: TrackingMode } = {},
): Promise<string> {
  const id = newId("send");
  await kysely(em.fork())
    .insertInto("sends")
    .values({
      id,
      team_id: teamId,
      environment,
      resource_type: "newsletter",
      resource_id: newsletterId,
      api_key_id: "key_x",
      status: "SENT",
      recipients,
      tracking,
      send_at: sql`now()`,
      settled_at: sql`now()`,
    })
    .execute();
  return id;
}
