import type { Readable, Writable } from "node:stream";
import { sql } from "kysely";
import type { Environment } from "../db/entities/shared.ts";
import { type EntityManager, forTenant, kysely, type MikroORM, openDatabase, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { OPERATOR, recordAct } from "../domain/audit/record.ts";
import { ApiError } from "../domain/errors.ts";
import { isId } from "../domain/ids.ts";
import { openAdmitted } from "../domain/secrets/admission.ts";
import { openVault, type Vault } from "../domain/secrets/crypto.ts";
import { type AppSettings, readAppSettings } from "./settings.ts";

/** Where a command has its settings and its input from, and what it writes to: the process, unless another program runs it. */
export interface Terminal {
  env: NodeJS.ProcessEnv;
  stdin: Readable;
  stdout: Writable;
  stderr: Writable;
}

/** A command's result: `text` for people, `data` for `--json`. */
export interface Outcome {
  text: string;
  data: Record<string, unknown>;
}

/** Settings and connections of a command. */
export interface Session extends AppSettings {
  terminal: Terminal;
  /** Prints JSON. */
  isJson: boolean;
  orm: MikroORM;
  vault: Vault;
  /** Those that the command is about; a change stands in the audit log of each. */
  tenants: Map<string, Tenant>;
}

interface SessionOptions {
  isJson?: boolean | undefined;
  /** Whether the database must admit the command with its keys; yes unless given. */
  isAdmitted?: boolean | undefined;
}

/** Runs `work` with a session over the settings that apply. */
export async function withSession<T>(
  terminal: Terminal,
  work: (session: Session) => Promise<T>,
  { isJson = false, isAdmitted = true }: SessionOptions = {},
): Promise<T> {
  const settings = readAppSettings(terminal.env);
  const vault = openVault(settings.env);
  const { DATABASE_URL } = settings.env;
  const database = isAdmitted
    ? await openAdmitted(settings.env, vault, { poolMax: 2 })
    : { orm: await openDatabase(DATABASE_URL, { poolMax: 2 }) };
  const { orm } = database;
  try {
    if ("connect" in database) await database.connect();
    return await work({ ...settings, terminal, isJson, orm, vault, tenants: new Map() });
  } finally {
    await orm.close(true);
  }
}

export function noteTenant({ tenants }: Session, { teamId, environment }: Tenant): Tenant {
  const tenant = { teamId, environment };
  tenants.set(teamId + environment, tenant);
  return tenant;
}

/** Commands that only show. */
const READS = /:(?:list|show|count|check|withheld|listen)$/;

/** Writes the entries of a command that was carried out: its changes are committed by then. */
export async function recordCommand(session: Session, act: string, values: object, { data }: Outcome): Promise<void> {
  const isTried = ("confirm" in values && !values.confirm) || ("dryRun" in values && values.dryRun);
  if (READS.test(act) || isTried) return;
  const em = session.orm.em.fork();
  const named: string[] = Object.values({ ...values, ...data })
    .flat()
    .flatMap((each) => [each, Object(each).id])
    .filter(isId);
  const objectId = named.find((id) => !id.startsWith("team_")) ?? null;
  const { rows } = await sql<{ teamId: string }>`select team_id as "teamId" from members where id = ${objectId}
    union select id from teams where id = any(${named})`.execute(kysely(em));
  if (session.tenants.size === 0) for (const { teamId } of rows) noteTenant(session, { teamId, environment: "LIVE" });
  const entry = { ...OPERATOR, act, objectId, count: null, requestId: null };
  for (const tenant of session.tenants.values()) await recordAct(em, tenant, entry);
}

type TenantWork<T> = (em: EntityManager, tenant: Tenant) => Promise<T>;

/** Runs `work` in a transaction that sees one tenant's rows. */
export const inTenant = <T>({ orm }: Session, tenant: Tenant, work: TenantWork<T>): Promise<T> =>
  transaction(forTenant(orm.em, tenant), (em) => work(em, tenant));

interface TeamOption {
  team?: string | undefined;
}

interface TenantOptions extends TeamOption {
  environment: Environment;
}

/**
 * The team of `--team`, else the demo team of the running stack.
 * @throws {ApiError} `not_found`
 */
export async function teamOf(session: Session, options: TeamOption): Promise<string> {
  return (await tenantOf(session, { ...options, environment: "LIVE" })).teamId;
}

async function findTeam({ orm, stack }: Session, { team }: TeamOption): Promise<string> {
  const teamId = team ?? stack?.team.id;
  if (!teamId) throw new ApiError("validation_failed", "Name the team with --team.");
  const found = await kysely(orm.em.fork())
    .selectFrom("teams")
    .select("id")
    .where("id", "=", teamId)
    .executeTakeFirst();
  if (!found) throw new ApiError("not_found", `There is no team ${teamId}.`);
  return teamId;
}

/** The team of `--team`; undefined for all. @throws {ApiError} `not_found` */
export const anyTeamOf = async (session: Session, options: TeamOption): Promise<string | undefined> =>
  options.team === undefined ? undefined : teamOf(session, options);

/** The tenant of `--team` and `--environment`. */
export async function tenantOf(session: Session, options: TenantOptions): Promise<Tenant> {
  return noteTenant(session, { teamId: await findTeam(session, options), environment: options.environment });
}

/** Runs `work` in a transaction of the tenant that the options name. */
export const inTenantOf = async <T>(session: Session, options: TenantOptions, work: TenantWork<T>): Promise<T> =>
  inTenant(session, await tenantOf(session, options), work);

/** What operators call a record of a table, and the command that lists such records where there is one. */
const OWNED = {
  newsletters: ["newsletter"],
  campaigns: ["campaign"],
  email_accounts: ["sending account", "account:list"],
  segments: ["segment", "segment:list"],
  webhook_endpoints: ["webhook endpoint", "webhook:list"],
  report_sources: ["provider", "provider:list"],
  dkim_keys: ["domain", "domain:list"],
} as const;

/**
 * The tenant that owns a record: the operator names the record by its id alone.
 * @throws {ApiError} `not_found`
 */
export async function ownerOf(session: Session, table: keyof typeof OWNED, id: string): Promise<Tenant> {
  const row = await kysely(session.orm.em.fork())
    .selectFrom(table)
    .select(["team_id", "environment"])
    .where("id", "=", id)
    .executeTakeFirst();
  if (!row) {
    const [name, listing] = OWNED[table];
    throw new ApiError("not_found", `There is no ${name} ${id}${listing ? `: see ${listing}` : ""}.`);
  }
  return noteTenant(session, { teamId: row.team_id, environment: row.environment });
}

/** Runs `work` in a transaction of the tenant that owns a record. */
export const inOwnersTenant = async <T>(
  session: Session,
  table: keyof typeof OWNED,
  id: string,
  work: TenantWork<T>,
): Promise<T> => inTenant(session, await ownerOf(session, table, id), work);

/** The address of a workflow in the Temporal UI; null when the command does not know the UI's own. */
export const uiOf = ({ stack }: Pick<Session, "stack">, workflowId: string): string | null =>
  stack?.temporal.ui
    ? `${stack.temporal.ui}/namespaces/${stack.temporal.namespace}/workflows/${encodeURIComponent(workflowId)}`
    : null;
