import type { Readable, Writable } from "node:stream";
import { ENVIRONMENTS, type Environment } from "../db/entities/shared.ts";
import { type EntityManager, forTenant, kysely, type MikroORM, openDatabase, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import type { VerifyLogin } from "../domain/accounts/accounts.ts";
import { openTokenPost, type PostForm } from "../domain/accounts/tokens.ts";
import { ApiError } from "../domain/errors.ts";
import { openAdmitted } from "../domain/secrets/admission.ts";
import { openVault, type Vault } from "../domain/secrets/crypto.ts";
import { type CheckUrl, guardedUrl } from "../domain/webhooks/endpoints.ts";
import { openUrlGuard } from "../lib/url-guard.ts";
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
  orm: MikroORM;
  vault: Vault;
  verify: VerifyLogin;
  postForm: PostForm;
  /** Waits for the DNS: not to be called in a transaction. */
  checkWebhookUrl: CheckUrl;
}

interface SessionOptions {
  /** Whether the database must admit the command with its keys, as it does every process; yes unless given. */
  isAdmitted?: boolean;
}

/** Opens a session for a command, prints its result, unless the command did, and closes the session. */
export type Run = (work: (session: Session) => Promise<Outcome | undefined>, options?: SessionOptions) => Promise<void>;

/** Runs `work` with a session over the settings that apply. */
export async function withSession<T>(
  terminal: Terminal,
  verify: (settings: AppSettings) => VerifyLogin,
  work: (session: Session) => Promise<T>,
  { isAdmitted = true }: SessionOptions = {},
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
    return await work({
      ...settings,
      terminal,
      orm,
      vault,
      verify: verify(settings),
      postForm: openTokenPost(settings.env),
      checkWebhookUrl: guardedUrl(openUrlGuard(settings.env)),
    });
  } finally {
    await orm.close(true);
  }
}

/** Runs `work` in a transaction that sees one tenant's rows. */
export const inTenant = <T>({ orm }: Session, tenant: Tenant, work: (em: EntityManager) => Promise<T>): Promise<T> =>
  transaction(forTenant(orm.em, tenant), work);

export interface TeamOption {
  team?: string;
}

export interface TenantOptions extends TeamOption {
  environment: Environment;
}

/**
 * The team of `--team`, else the demo team of the running stack.
 * @throws {ApiError} `not_found`
 */
export async function teamOf({ orm, stack }: Session, { team }: TeamOption): Promise<string> {
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

/** The tenant of `--team` and `--environment`. */
export async function tenantOf(session: Session, options: TenantOptions): Promise<Tenant> {
  return { teamId: await teamOf(session, options), environment: options.environment };
}

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
export async function ownerOf({ orm }: Session, table: keyof typeof OWNED, id: string): Promise<Tenant> {
  const row = await kysely(orm.em.fork())
    .selectFrom(table)
    .select(["team_id", "environment"])
    .where("id", "=", id)
    .executeTakeFirst();
  if (!row) {
    const [name, listing] = OWNED[table];
    throw new ApiError("not_found", `There is no ${name} ${id}${listing ? `: see ${listing}` : ""}.`);
  }
  return { teamId: row.team_id, environment: row.environment };
}

/** `live` or `LIVE`. */
export function readEnvironment(text: string): Environment {
  const environment = ENVIRONMENTS.find((known) => known === text.toUpperCase());
  if (!environment) throw new ApiError("validation_failed", "The environment is live or test.");
  return environment;
}
