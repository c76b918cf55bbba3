import { LockMode, UniqueConstraintViolationException } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { type AccountProvider, type AccountStatus, EmailAccount, type SmtpSecurity } from "../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../db/orm.ts";
import { transaction } from "../db/transaction.ts";
import { hasControlCharacter } from "./audience/rules.ts";
import type { Vault } from "./crypto.ts";
import { ApiError, notFound } from "./errors.ts";
import { newId } from "./ids.ts";
import type { AccountFailure, SmtpReason } from "./mail/outcome.ts";
import type { SendingAccount } from "./sends/account-capacity.ts";
import { forgetRefusals, recordRefusal } from "./sends/account-refusals.ts";
import { emit } from "./webhooks/emit.ts";
import { accountRecord } from "./webhooks/records.ts";

export interface AccountFields {
  /** Normalised address; newsletters from this very address go out here. */
  email: string;
  displayName: string;
  provider: AccountProvider;
  /** Domains it may send for besides its own address, normalised. */
  allowedDomains: string[];
  host: string;
  port: number;
  security: SmtpSecurity;
  username: string | null;
  password: string | null;
  /** Connections that may be open at once, over all workers. */
  maxConnections: number;
  /** Messages per clock hour and per UTC day; null is unlimited. */
  hourlyLimit: number | null;
  dailyLimit: number | null;
}

/** Server and credentials of a login. */
export interface SmtpLogin {
  host: string;
  port: number;
  secure: SmtpSecurity;
  user?: string | undefined;
  pass?: string | undefined;
}

/** Connects and logs in; activities/smtp/pool.ts has the real one. `message` is fit to be shown. */
export type VerifyLogin = (login: SmtpLogin) => Promise<{ ok: true } | { ok: false; reason: string; message: string }>;

/** The server of an account refuses the login; the message says why. */
export class AccountCheckError extends Error {
  override name = "AccountCheckError";
}

interface AccountDeps {
  vault: Vault;
  verify: VerifyLogin;
}

/** Binds an encrypted password to its row: moved to another one, it does not decrypt. */
export const passwordContext = (accountId: string): string => `email_accounts/${accountId}/password`;

/**
 * Connects a sending account after a real login has worked; the account is ACTIVE then. Call it outside a transaction:
 * the login may take long.
 * @throws {AccountCheckError} when the server refuses the login; nothing is stored then
 * @throws {ApiError} `resource_already_exists` when the tenant has an account of this address
 */
export async function connectAccount(
  em: EntityManager,
  tenant: Tenant,
  { password, ...fields }: AccountFields,
  { vault, verify }: AccountDeps,
): Promise<EmailAccount> {
  if (hasControlCharacter(fields.displayName)) {
    throw new ApiError("validation_failed", "A display name has one line, without control characters.", {
      param: "display_name",
    });
  }
  await checkLogin(verify, { ...fields, password });
  const id = newId("account");
  const account = em.create(EmailAccount, {
    id,
    ...tenant,
    ...fields,
    status: "ACTIVE",
    encryptedPassword: password === null ? null : vault.encrypt(password, passwordContext(id)),
    lastCheckedAt: new Date(),
    lastError: null,
  });
  try {
    await em.flush();
  } catch (error) {
    if (!(error instanceof UniqueConstraintViolationException)) throw error;
    throw new ApiError("resource_already_exists", "An account with this address is connected already.");
  }
  return account;
}

/**
 * An account of the tenant.
 * @throws {ApiError} `not_found`
 */
export async function readAccount(em: EntityManager, accountId: string): Promise<EmailAccount> {
  const account = await em.findOne(EmailAccount, { id: accountId });
  if (!account) throw notFound();
  return account;
}

/**
 * Takes an account out of service; sends that use it wait.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when its access was revoked for good
 */
export async function suspendAccount(em: EntityManager, accountId: string): Promise<EmailAccount> {
  return setStatus(em, accountId, { status: "SUSPENDED" });
}

/**
 * Puts an account back into service once a login works.
 * @throws {AccountCheckError} when the server refuses the login; the account stays as it is
 * @throws {ApiError} `not_found`; `resource_state_invalid` when its access was revoked for good
 */
export async function resumeAccount(
  em: EntityManager,
  accountId: string,
  { vault, verify }: AccountDeps,
): Promise<EmailAccount> {
  const known = await readAccount(em, accountId);
  const { encryptedPassword } = known;
  const password = encryptedPassword == null ? null : vault.decrypt(encryptedPassword, passwordContext(accountId));
  await checkLogin(verify, { ...known, username: known.username ?? null, password });
  return setStatus(em, accountId, { status: "ACTIVE", lastCheckedAt: new Date(), lastError: null });
}

function setStatus(
  em: EntityManager,
  accountId: string,
  change: { status: AccountStatus; lastCheckedAt?: Date; lastError?: null },
): Promise<EmailAccount> {
  return transaction(em, async (em) => {
    const account = await em.findOne(
      EmailAccount,
      { id: accountId },
      { lockMode: LockMode.PESSIMISTIC_WRITE, refresh: true },
    );
    if (!account) throw notFound();
    if (account.status === "REVOKED") throw new ApiError("resource_state_invalid", "The account's access was revoked.");
    const worked = isWorking(account);
    em.assign(account, change);
    await em.flush();
    if (change.lastError === null) await forgetRefusals(em, accountId);
    if (isWorking(account) !== worked) {
      await emitStatus(em, account, worked ? "account.error" : "account.recovered", accountId);
    }
    return em.refreshOrFail(account);
  });
}

const isWorking = ({ status }: EmailAccount): boolean => status === "ACTIVE";

const emitStatus = (
  em: EntityManager,
  tenant: Tenant,
  event: "account.error" | "account.recovered",
  accountId: string,
) =>
  emit(em, tenant, event, {
    record: accountRecord("a"),
    from: sql`email_accounts a where ${ofTenant(tenant, "a")} and a.id = ${accountId}`,
  });

/** Reasons that pause a send and would pause every other send of the account too. */
const ACCOUNT_FAILURES: ReadonlySet<string> = new Set<SmtpReason>([
  "greeting_refused",
  "login_in_clear_text",
  "login_refused",
  "sender_refused",
  "server_forbidden",
  "tls_failed",
]);

/** Whether a send was paused by a failure of its account, which lasts until the account is repaired. */
export const isAccountFailure = (reason: string): boolean => ACCOUNT_FAILURES.has(reason);

/** The failure that a login does not show: the server takes no mail from the account's address. */
const SENDER_REFUSED = "sender_refused" satisfies SmtpReason;

/**
 * The condition that a send under way may mail over an account. One in ERROR is tried: a login that works, or a mail that
 * its server takes, makes it ACTIVE again. New sends are refused meanwhile.
 * @param accounts alias of `email_accounts`
 */
export const mayMail = (accounts: string): RawBuilder<boolean> =>
  sql<boolean>`(${sql.ref(`${accounts}.status`)} in ('ACTIVE', 'ERROR'))`;

/** Takes an ACTIVE account to ERROR; another status stays as it is. */
export async function recordAccountFailure(em: EntityManager, account: SendingAccount, reason: string): Promise<void> {
  const recorded = await kysely(em)
    .updateTable("email_accounts")
    .set({ status: "ERROR", last_error: reason, last_checked_at: sql<string>`now()` })
    .where(ofTenant(account))
    .where("id", "=", account.accountId)
    .where("status", "=", "ACTIVE")
    .executeTakeFirst();
  if (recorded.numUpdatedRows > 0n) await emitStatus(em, account, "account.error", account.accountId);
}

/** Records that an account's server takes mail again. */
export const recordAccountRecovery = (em: EntityManager, account: SendingAccount): Promise<void> =>
  transaction(em, (tx) => recover(tx, account));

/**
 * Records that an account's server refused a connection while none was logged in: no process tries another one for a
 * while, and after a refusal for good the account is in ERROR.
 */
export function recordRefusedLogin(em: EntityManager, account: SendingAccount, failure: AccountFailure): Promise<void> {
  return transaction(em, async (tx) => {
    if (!failure.temporary) await recordAccountFailure(tx, account, failure.reason);
    await recordRefusal(tx, account.accountId, failure);
  });
}

/** Records that a login worked after a refusal. */
export function recordLogin(em: EntityManager, account: SendingAccount): Promise<void> {
  return transaction(em, async (tx) => {
    await recover(tx, account, sql<boolean>`last_error is distinct from ${SENDER_REFUSED}`);
    await forgetRefusals(tx, account.accountId);
  });
}

async function recover(em: EntityManager, account: SendingAccount, condition = sql<boolean>`true`): Promise<void> {
  const recorded = await kysely(em)
    .updateTable("email_accounts")
    .set({ status: "ACTIVE", last_error: null, last_checked_at: sql<string>`now()` })
    .where(ofTenant(account))
    .where("id", "=", account.accountId)
    .where("status", "=", "ERROR")
    .where(condition)
    .executeTakeFirst();
  if (recorded.numUpdatedRows > 0n) await emitStatus(em, account, "account.recovered", account.accountId);
}

async function checkLogin(
  verify: VerifyLogin,
  {
    host,
    port,
    security,
    username,
    password,
  }: Pick<AccountFields, "host" | "port" | "security" | "username" | "password">,
): Promise<void> {
  const check = await verify({
    host,
    port,
    secure: security,
    user: username ?? undefined,
    pass: password ?? undefined,
  });
  if (!check.ok) throw new AccountCheckError(`${host}:${port} cannot be used (${check.reason}): ${check.message}`);
}
