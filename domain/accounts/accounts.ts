import { LockMode, UniqueConstraintViolationException } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import {
  type AccountProvider,
  type AccountStatus,
  EmailAccount,
  type SmtpSecurity,
} from "../../db/entities/account.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { hasControlCharacter } from "../audience/rules.ts";
import { type Edit, noteEdit } from "../edits.ts";
import { ApiError, orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { AccountFailure, SmtpReason } from "../mail/outcome.ts";
import { sealContext, type Vault } from "../secrets/crypto.ts";
import type { SendingAccount } from "../sends/ledger/account-capacity.ts";
import { forgetRefusals, type Refusals, recordRefusal } from "../sends/ledger/account-capacity.ts";
import { emit } from "../webhooks/emit.ts";
import { accountRecord } from "../webhooks/records.ts";
import {
  accessTokenOf,
  deleteGrant,
  hasGrant,
  type OAuthGrant,
  type PostForm,
  storeGrant,
  TokenError,
  type TriedGrant,
  tryGrant,
} from "./tokens.ts";

export interface AccountFields {
  /** Normalised; newsletters from this very address go out here. */
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
  grant?: OAuthGrant | undefined;
  /** Over all workers. */
  maxConnections: number;
  /** Messages per clock hour and per UTC day; null is unlimited. */
  hourlyLimit: number | null;
  dailyLimit: number | null;
}

export interface SmtpLogin {
  host: string;
  port: number;
  secure: SmtpSecurity;
  user?: string | undefined;
  pass?: string | undefined;
  accessToken?: string | undefined;
}

/** Connects and logs in. `message` is fit to be shown. */
export type VerifyLogin = (login: SmtpLogin) => Promise<{ ok: true } | { ok: false; reason: string; message: string }>;

/** The message says why the server refuses the login. */
export class AccountCheckError extends Error {
  override name = "AccountCheckError";
  /** A code (`SmtpReason`), and a sentence for the account's owner. */
  readonly failure: { reason: string; message: string };

  constructor(problem: string, failure: { reason: string; message: string }) {
    super(`${problem} (${failure.reason}): ${failure.message}`);
    this.failure = failure;
  }
}

export interface AccountDeps {
  vault: Vault;
  verify: VerifyLogin;
  /** Accounts with an OAuth grant need it. */
  postForm?: PostForm;
}

/**
 * Connects a sending account after a login has worked; outside a transaction, because the login may take long.
 * @param options `isPending`: makes no login; the account is PENDING until a check has logged in
 * @throws {AccountCheckError} and stores nothing when the server refuses the login
 * @throws {ApiError} `resource_already_exists`
 */
export async function connectAccount(
  em: EntityManager,
  tenant: Tenant,
  { password, grant, ...fields }: AccountFields,
  deps: AccountDeps,
  { isPending = false } = {},
): Promise<EmailAccount> {
  if (hasControlCharacter(fields.displayName)) {
    throw new ApiError("validation_failed", "A display name has one line, without control characters.", {
      param: "display_name",
    });
  }
  const { vault } = deps;
  const untried = grant && { grant };
  const given = isPending ? untried : await checkLogin(deps, fields, { password, grant });
  const id = newId("account");
  try {
    return await transaction(em, async (tx) => {
      const account = tx.create(EmailAccount, {
        id,
        ...tenant,
        ...fields,
        status: isPending ? "PENDING" : "ACTIVE",
        encryptedPassword: sealPassword(vault, id, password),
        lastCheckedAt: isPending ? null : new Date(),
        lastError: null,
      });
      await tx.flush();
      if (given) await storeGrant(tx, id, given, vault);
      return account;
    });
  } catch (error) {
    if (!(error instanceof UniqueConstraintViolationException)) throw error;
    throw new ApiError("resource_already_exists", "An account with this address is already connected.");
  }
}

/** @throws {ApiError} `not_found` */
export const readAccount = async (em: EntityManager, accountId: string): Promise<EmailAccount> =>
  orNotFound(await em.findOne(EmailAccount, { id: accountId }));

/**
 * Sends that use the account wait.
 * @throws {ApiError} `not_found`; `resource_state_invalid` when its access was revoked for good
 */
export async function suspendAccount(em: EntityManager, accountId: string): Promise<EmailAccount> {
  return changeUnlessRevoked(em, accountId, { status: "SUSPENDED" });
}

/**
 * Puts an account back into service once a login works.
 * @throws {AccountCheckError} when the server refuses the login
 * @throws {ApiError} `not_found`; `resource_state_invalid` when its access was revoked for good
 */
export async function resumeAccount(em: EntityManager, accountId: string, deps: AccountDeps): Promise<EmailAccount> {
  const known = await readAccount(em, accountId);
  refuseRevoked(known);
  await checkStoredLogin(em, known, deps);
  return changeUnlessRevoked(em, accountId, { status: "ACTIVE", lastCheckedAt: new Date(), lastError: null });
}

/** Without a user name there is no login. */
export type Credentials = Pick<AccountFields, "username" | "password" | "grant">;

type ServerChanges = Partial<Pick<AccountFields, "host" | "port" | "security">>;

/** Settings of an account that may be changed; those that are missing stay as they are. */
export interface AccountChanges
  extends ServerChanges,
    Partial<Pick<AccountFields, "maxConnections" | "hourlyLimit" | "dailyLimit">> {
  credentials?: Credentials;
}

/**
 * Changes an account. Another server, port, security or login is saved once a login with it works; the account is then
 * ACTIVE, unless an operator suspended it. Slices that begin later use the new settings.
 * @throws {AccountCheckError} and saves nothing when the server refuses the login
 * @throws {ApiError} `not_found`; `resource_state_invalid` for another server without credentials when the account's access
 *   was revoked
 */
export async function updateAccount(
  em: EntityManager,
  accountId: string,
  { credentials, ...changes }: AccountChanges,
  deps: AccountDeps,
  edit: Edit | null = null,
): Promise<EmailAccount> {
  const { vault } = deps;
  const known = await readAccount(em, accountId);
  const { host = known.host, port = known.port, security = known.security } = changes;
  const server = { host, port, security };
  let tried: TriedGrant | undefined;
  if (credentials) tried = await checkLogin(deps, { ...server, username: credentials.username }, credentials);
  const isOtherServer = host !== known.host || port !== known.port || security !== known.security;
  if (!credentials && isOtherServer) {
    refuseRevoked(known);
    await checkStoredLogin(em, { ...known, ...server }, deps);
  }
  return transaction(em, async (tx) => {
    if (credentials) await (tried ? storeGrant(tx, accountId, tried, vault) : deleteGrant(tx, accountId));
    const changeOf = ({ status }: EmailAccount): AccountChange => ({
      ...changes,
      ...(credentials && {
        username: credentials.username,
        encryptedPassword: sealPassword(vault, accountId, credentials.password),
      }),
      ...((credentials || isOtherServer) && {
        status: status === "SUSPENDED" ? status : "ACTIVE",
        lastCheckedAt: new Date(),
        lastError: null,
      }),
    });
    return changeAccount(tx, accountId, changeOf, edit);
  });
}

const sealPassword = (vault: Vault, accountId: string, password: string | null): string | null =>
  password === null ? null : vault.encrypt(password, sealContext("email_accounts", "encrypted_password", accountId));

function refuseRevoked({ status }: Pick<EmailAccount, "status">): void {
  if (status !== "REVOKED") return;
  throw new ApiError("resource_state_invalid", "The account's access was revoked; enter new credentials.");
}

type AccountChange = Partial<
  Pick<EmailAccount, "status" | "lastCheckedAt" | "lastError" | "username" | "encryptedPassword"> &
    Omit<AccountChanges, "credentials">
>;

function changeUnlessRevoked(em: EntityManager, accountId: string, change: AccountChange): Promise<EmailAccount> {
  return changeAccount(em, accountId, (account) => {
    refuseRevoked(account);
    return change;
  });
}

function changeAccount(
  em: EntityManager,
  accountId: string,
  changeOf: (account: EmailAccount) => AccountChange,
  edit: Edit | null = null,
): Promise<EmailAccount> {
  return transaction(em, async (tx) => {
    await noteFinding(tx, accountId);
    const lock = { lockMode: LockMode.PESSIMISTIC_WRITE, refresh: true };
    const account = orNotFound(await tx.findOne(EmailAccount, { id: accountId }, lock));
    await noteEdit(tx, edit);
    const { status: formerStatus } = account;
    const change = changeOf(account);
    tx.assign(account, { ...change, ...(change.lastError === null && { lastReply: null, refusals: null }) });
    await tx.flush();
    if (change.lastError === null) await forgetRefusals(tx, accountId);
    const event = statusEvent(formerStatus, account.status);
    if (event) await emitStatus(tx, account, event, accountId);
    return tx.refreshOrFail(account);
  });
}

/** An account that works for the first time has not recovered. */
function statusEvent(from: AccountStatus, to: AccountStatus): "account.error" | "account.recovered" | undefined {
  if (to === "ACTIVE") return from === "ACTIVE" || from === "PENDING" ? undefined : "account.recovered";
  return from === "ACTIVE" ? "account.error" : undefined;
}

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
  "access_revoked",
  "greeting_refused",
  "helo_refused",
  "login_in_clear_text",
  "login_refused",
  "sender_refused",
  "server_forbidden",
  "tls_failed",
  "token_refused",
]);

export const isAccountFailure = (reason: string): boolean => ACCOUNT_FAILURES.has(reason);

/** The failure that a working login does not disprove: the server takes no mail from the account's address. */
const SENDER_REFUSED = "sender_refused" satisfies SmtpReason;

/** Only other credentials can make it ACTIVE again. */
const ACCESS_REVOKED = "access_revoked" satisfies SmtpReason;

/** Failures that may pass set an account to ERROR when this many came in a row, the first of them this long ago. */
const FAILURES_TO_ERROR = 3;
const FAILING_SECONDS = 900;

/**
 * The account becomes REVOKED when its OAuth grant was withdrawn, else ERROR, unless its status is as bad or worse.
 * @param reply the server's, without addresses
 */
export function recordAccountFailure(
  em: EntityManager,
  account: SendingAccount,
  reason: string,
  reply?: string,
): Promise<void> {
  const status = reason === ACCESS_REVOKED ? "REVOKED" : "ERROR";
  const isBetter = sql<boolean>`(status in ('PENDING', 'ACTIVE') or status = 'ERROR' and ${status} = 'REVOKED')`;
  return transaction(em, (tx) => setStatus(tx, account, status, { reason, reply }, isBetter));
}

export const recordAccountRecovery = (em: EntityManager, account: SendingAccount): Promise<void> =>
  transaction(em, (tx) => setStatus(tx, account, "ACTIVE", {}, sql<boolean>`status = 'ERROR'`));

/**
 * Records that the server refused a connection while none was logged in: no process tries another one for a while. A
 * refusal for good sets the account to ERROR, or REVOKED; others do once they are many and have lasted.
 */
export function recordRefusedLogin(
  em: EntityManager,
  account: SendingAccount,
  failure: Pick<AccountFailure, "reason" | "temporary">,
): Promise<Refusals> {
  return transaction(em, async (tx) => {
    await noteFinding(tx, account.accountId);
    // In the order in which connections are leased: the account's row, then that of its refusals.
    const row = sql`select from email_accounts where id = ${account.accountId} and ${ofTenant(account)} for update`;
    await row.execute(kysely(tx));
    const refusals = await recordRefusal(tx, account.accountId, failure);
    const hasLasted = refusals.count >= FAILURES_TO_ERROR && refusals.lastedSeconds >= FAILING_SECONDS;
    if (!failure.temporary || hasLasted) await recordAccountFailure(tx, account, failure.reason);
    return refusals;
  });
}

export function recordLogin(em: EntityManager, account: SendingAccount): Promise<void> {
  const isRepaired = sql<boolean>`(status = 'ERROR' and last_error is distinct from ${SENDER_REFUSED})`;
  return transaction(em, async (tx) => {
    await setStatus(tx, account, "ACTIVE", {}, isRepaired);
    await forgetRefusals(tx, account.accountId);
  });
}

async function setStatus(
  em: EntityManager,
  account: SendingAccount,
  status: "ACTIVE" | "ERROR" | "REVOKED",
  { reason = null, reply = null }: { reason?: string | null; reply?: string | null | undefined },
  condition: RawBuilder<boolean>,
): Promise<void> {
  await noteFinding(em, account.accountId);
  const { numUpdatedRows } = await kysely(em)
    .updateTable("email_accounts")
    .set({ status, last_error: reason, last_reply: reply, last_checked_at: sql<string>`now()` })
    .where(ofTenant(account))
    .where("id", "=", account.accountId)
    .where(condition)
    .executeTakeFirstOrThrow();
  const event = status === "ACTIVE" ? "account.recovered" : "account.error";
  if (numUpdatedRows > 0n) await emitStatus(em, account, event, account.accountId);
}

const CHECK_AFTER_FINDING_SECONDS = 300;

/** Counts a finding in the transaction that records it: the result of a check that began before is dropped. */
async function noteFinding(em: EntityManager, accountId: string): Promise<void> {
  await sql`
    update account_checks set findings = findings + 1,
      next_at = least(next_at, now() + make_interval(secs => ${CHECK_AFTER_FINDING_SECONDS}))
    where account_id = ${accountId}`.execute(kysely(em));
}

type Server = Pick<AccountFields, "host" | "port" | "security"> & { username?: string | null | undefined };

async function checkLogin(
  deps: AccountDeps,
  server: Server,
  { password, grant }: Pick<Credentials, "password" | "grant">,
): Promise<TriedGrant | undefined> {
  const tried = grant && (await orCheckError(tryGrant(grant, postFormOf(deps))));
  await verifyLogin(deps, server, { password, accessToken: tried?.issued.accessToken });
  return tried;
}

/** @throws {AccountCheckError} when the server refuses a login with the stored credentials */
async function checkStoredLogin(
  em: EntityManager,
  { id, encryptedPassword, ...server }: Server & Pick<EmailAccount, "id" | "encryptedPassword">,
  deps: AccountDeps,
): Promise<void> {
  const password =
    encryptedPassword == null
      ? null
      : deps.vault.decrypt(encryptedPassword, sealContext("email_accounts", "encrypted_password", id));
  const accessToken = (await hasGrant(em, id))
    ? await orCheckError(accessTokenOf(em, id, { vault: deps.vault, postForm: postFormOf(deps) }))
    : undefined;
  await verifyLogin(deps, server, { password, accessToken });
}

/** @throws {AccountCheckError} when the server refuses the login */
async function verifyLogin(
  { verify }: AccountDeps,
  { host, port, security, username }: Server,
  { password, accessToken }: { password: string | null; accessToken: string | undefined },
): Promise<void> {
  const user = username ?? undefined;
  const login = { host, port, secure: security, user };
  const check = await verify(
    accessToken === undefined ? { ...login, pass: password ?? undefined } : { ...login, accessToken },
  );
  if (!check.ok) throw new AccountCheckError(`${host}:${port} cannot be used`, check);
}

function postFormOf({ postForm }: AccountDeps): PostForm {
  if (!postForm) throw new Error("accounts with an OAuth grant need a way to post to token endpoints");
  return postForm;
}

const orCheckError = <T>(token: Promise<T>): Promise<T> =>
  token.catch((error: unknown) => {
    if (!(error instanceof TokenError)) throw error;
    const { reason } = error.failure;
    throw new AccountCheckError("There is no access token", { reason, message: error.message });
  });
