import { randomBytes } from "node:crypto";
import type { Environment } from "../../db/entities/shared.ts";
import { Member, type Plan, type Role, Team } from "../../db/entities/team.ts";
import { type EntityManager, forTenant, type MikroORM, openDatabase } from "../../db/orm.ts";
import { type KeyGrant, type MintedKey, mintKey } from "../../domain/access/keys.ts";
import { roleHolds, SCOPES, type Scope } from "../../domain/access/scopes.ts";
import { openVault, type Vault } from "../../domain/crypto.ts";
import { newId } from "../../domain/ids.ts";
import { closeStack, stack } from "./stack.ts";

interface Backdoor {
  orm: MikroORM;
  vault: Vault;
}

let opened: Promise<Backdoor> | undefined;

async function openBackdoor(): Promise<Backdoor> {
  const { env } = await stack();
  return { orm: await openDatabase(env.DATABASE_URL, 5), vault: openVault(env) };
}

/** The stack's database and vault, for facts that a test writes or reads past the API. */
export function backdoor(): Promise<Backdoor> {
  opened ??= openBackdoor();
  return opened;
}

/** Closes the connections that the tests opened. */
export async function closeAll(): Promise<void> {
  await opened?.then(({ orm }) => orm.close(true)).catch(() => {});
  await closeStack();
}

/** Text no other test has. */
export const unique = (prefix: string): string => `${prefix}-${randomBytes(6).toString("hex")}`;

/** An address no other test has. */
export const uniqueEmail = (name = "person"): string => `${unique(name)}@example.com`;

const SENDS: readonly Scope[] = ["newsletters:send", "campaigns:send"];

/** Every scope of a role that may stand together with sending. */
export const scopesBesideSending = (role: Role): Scope[] =>
  SCOPES.filter((scope) => roleHolds(role, scope) && scope !== "suppressions:delete");

/** Every scope of a role that may stand together with lifting suppressions. */
export const scopesBesideDeleting = (role: Role): Scope[] =>
  SCOPES.filter((scope) => roleHolds(role, scope) && !SENDS.includes(scope));

export interface TeamOptions {
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

/** A team of its own for a test. */
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

/** A member of a team. */
export async function makeMember(em: EntityManager, teamId: string, role: Role): Promise<Member> {
  const member = em.create(Member, { id: newId("member"), teamId, email: uniqueEmail("member"), name: "Member", role });
  await em.flush();
  return member;
}

/** A team with a member and keys in both environments. */
export async function makeTeam(options: TeamOptions = {}): Promise<TestTeam> {
  const { plan = "BUSINESS", role = "OWNER", scopes = scopesBesideSending(role), timeZone = "UTC" } = options;
  const { orm, vault } = await backdoor();
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
    return mintKey(em, vault, whole, MAX_API_KEYS);
  };
  const liveKey = await mint();
  const testKey = await mint({ environment: "TEST" });
  const cleanup = await mint({ scopes: scopesBesideDeleting(role) });
  const keys = { live: liveKey.key, test: testKey.key, cleanup: cleanup.key };
  return { team, owner, keys, liveKey, testKey, em, vault, mint };
}
