import { text } from "node:stream/consumers";
import {
  ACCOUNT_PROVIDERS,
  ACCOUNT_STATUSES,
  type EmailAccount,
  type SmtpSecurity,
} from "../../db/entities/account.ts";
import { forTenant } from "../../db/orm.ts";
import {
  type AccountChanges,
  type AccountDeps,
  type Credentials,
  connectAccount,
  readAccount,
  resumeAccount,
  suspendAccount,
  updateAccount,
} from "../../domain/accounts/accounts.ts";
import { disconnectAccount } from "../../domain/accounts/disconnect.ts";
import { openTokenPost, TOKEN_URLS } from "../../domain/accounts/tokens.ts";
import { ApiError } from "../../domain/errors.ts";
import { type AccountFacts, listAccounts, readAccountFacts } from "../../domain/sends/operators/account-inspection.ts";
import { argument, type Commands, command, flag, OF_ANY_TEAM, OF_TENANT, option, required } from "../command.ts";
import { absoluteUrl, address, domains, listOf, NONE, numberOrNone, oneOf, wholeNumber } from "../options.ts";
import { refusedText, table, toJson } from "../output.ts";
import { anyTeamOf, type Outcome, ownerOf, type Session, type Terminal, tenantOf } from "../session.ts";

const SECURITIES: readonly SmtpSecurity[] = ["none", "starttls", "tls"];
/** Variables that may hold secrets: an argument would show in the list of processes. */
const PASSWORD_VARIABLE = "SMTP_PASSWORD";
const REFRESH_TOKEN_VARIABLE = "OAUTH_REFRESH_TOKEN";
const CLIENT_SECRET_VARIABLE = "OAUTH_CLIENT_SECRET";

const PORT = wholeNumber(1, 65_535);
const CONNECTIONS = wholeNumber(1, 1_000);
const MOST_MAILS = 2_147_483_647;

const ACCOUNT = { account: required("<id>", "the account") };
const LOGIN = {
  user: option("<name>", `login name, with the password in ${PASSWORD_VARIABLE}; without it there is no login`),
  passwordStdin: flag("read the password from standard input"),
  oauthClientId: option(
    "<id>",
    `log in by XOAUTH2 with a refresh token in ${REFRESH_TOKEN_VARIABLE}, and the client's secret, if it has one, in ${CLIENT_SECRET_VARIABLE}`,
  ),
  oauthTokenUrl: option("<url>", "the provider's token endpoint; known of GOOGLE and MICROSOFT", absoluteUrl),
  oauthStdin: flag("read the refresh token, and on a second line the client's secret, from standard input"),
};

/** Sending accounts. */
export const commands: Commands = {
  "account:connect": command(
    "connect an SMTP account",
    {
      ...OF_TENANT,
      ...LOGIN,
      email: required("<address>", "the address it sends as", address),
      host: required("<name>", "SMTP server, on the public Internet unless SMTP_ALLOWED_HOSTS names it"),
      port: option("<port>", "SMTP port", PORT, 587),
      security: option(
        "<kind>",
        `${SECURITIES.join(", ")}; a login takes starttls or tls, except on loopback`,
        oneOf(SECURITIES),
        "starttls",
      ),
      pending: flag("do not log in now: the account is PENDING until a scheduled check has logged in"),
      displayName: option("<name>", "its name; the address unless given"),
      provider: option("<name>", ACCOUNT_PROVIDERS.join(", "), oneOf(ACCOUNT_PROVIDERS), "SMTP_OTHER"),
      domains: option("<domains>", "comma-separated domains it may send for besides its own address", domains, []),
      maxConnections: option("<count>", "connections at once", CONNECTIONS, 10),
      hourlyLimit: option("<mails>", "mails an hour", wholeNumber(1, MOST_MAILS)),
      dailyLimit: option("<mails>", "mails a UTC day", wholeNumber(1, MOST_MAILS)),
    },
    async (session, options) => {
      const tenant = await tenantOf(session, options);
      const { email, displayName = email, provider, host, port, security, maxConnections } = options;
      const credentials = await readCredentials(session.terminal, options, TOKEN_URLS[provider]);
      const limits = { hourlyLimit: options.hourlyLimit ?? null, dailyLimit: options.dailyLimit ?? null };
      const server = { provider, host, port, security, maxConnections, allowedDomains: options.domains };
      const fields = { email, displayName, ...server, ...credentials, ...limits };
      const em = forTenant(session.orm.em, tenant);
      return shown(await connectAccount(em, tenant, fields, depsOf(session), { isPending: options.pending }));
    },
  ),

  "account:list": command(
    "list sending accounts: those that fail first",
    {
      ...OF_ANY_TEAM,
      status: option("<statuses>", ...listOf(ACCOUNT_STATUSES)),
    },
    async (session, { status: statuses, ...options }) => {
      const teamId = await anyTeamOf(session, options);
      const accounts = await listAccounts(session.orm.em.fork(), { teamId, statuses });
      return {
        text: table(accounts, "No account", {
          ACCOUNT: ({ id }) => id,
          TEAM: ({ teamId }) => teamId,
          EMAIL: ({ email }) => email,
          "OPEN SENDS": ({ sends }) => sends.length,
          STATUS: statusOf,
        }),
        data: { accounts: accounts.map(dataOf) },
      };
    },
  ),

  "account:show": command(
    "print a sending account: its status and why, its checks, limits and the sends that it mails",
    { id: argument("the account") },
    async ({ orm }, { id }) => {
      const account = await readAccountFacts(orm.em.fork(), id);
      return { text: describe(account), data: { account: dataOf(account) } };
    },
  ),

  "account:credentials": command(
    "give an account other credentials, once a login with them works; also one whose access was revoked",
    { ...LOGIN, ...ACCOUNT },
    async (session, { account: id, ...options }) => {
      const em = forTenant(session.orm.em, await ownerOf(session, "email_accounts", id));
      const { provider } = await readAccount(em, id);
      const credentials = await readCredentials(session.terminal, options, TOKEN_URLS[provider]);
      return shown(await updateAccount(em, id, { credentials }, depsOf(session)));
    },
  ),

  "account:update": command(
    "change an account: another server, port, security or login once a login with it works; its sends use it from their next slice on",
    {
      ...ACCOUNT,
      ...LOGIN,
      host: option("<name>", "SMTP server"),
      port: option("<port>", "SMTP port", PORT),
      security: option("<kind>", SECURITIES.join(", "), oneOf(SECURITIES)),
      maxConnections: option("<count>", "connections at once", CONNECTIONS),
      hourlyLimit: option("<mails>", `mails an hour, or ${NONE}`, numberOrNone(1, MOST_MAILS)),
      dailyLimit: option("<mails>", `mails a UTC day, or ${NONE}`, numberOrNone(1, MOST_MAILS)),
    },
    async (session, { account: id, host, port, security, maxConnections, hourlyLimit, dailyLimit, ...login }) => {
      const em = forTenant(session.orm.em, await ownerOf(session, "email_accounts", id));
      const { provider } = await readAccount(em, id);
      const isOtherLogin = login.user !== undefined || login.oauthClientId !== undefined;
      const changes: AccountChanges = {
        ...(host !== undefined && { host }),
        ...(port !== undefined && { port }),
        ...(security !== undefined && { security }),
        ...(maxConnections !== undefined && { maxConnections }),
        ...(hourlyLimit !== undefined && { hourlyLimit: hourlyLimit === NONE ? null : hourlyLimit }),
        ...(dailyLimit !== undefined && { dailyLimit: dailyLimit === NONE ? null : dailyLimit }),
        ...(isOtherLogin && {
          credentials: await readCredentials(session.terminal, login, TOKEN_URLS[provider]),
        }),
      };
      if (Object.keys(changes).length === 0) {
        throw new ApiError(
          "validation_failed",
          "Name what to change: --help lists it. To remove a login: account:credentials.",
        );
      }
      return shown(await updateAccount(em, id, changes, depsOf(session)));
    },
  ),

  "account:disconnect": command(
    "delete an account and its credentials, unless a draft or a send has no other ACTIVE account",
    ACCOUNT,
    async (session, { account: id }) => {
      const tenant = await ownerOf(session, "email_accounts", id);
      await disconnectAccount(session.orm.em.fork(), { ...tenant, accountId: id });
      return { text: `Account ${id} is disconnected, and its credentials are erased`, data: { account: { id } } };
    },
  ),

  "account:suspend": command(
    "take an account out of service; sends that use it wait",
    ACCOUNT,
    async (session, { account: id }) => {
      const tenant = await ownerOf(session, "email_accounts", id);
      return shown(await suspendAccount(forTenant(session.orm.em, tenant), id));
    },
  ),

  "account:resume": command(
    "put an account back into service, once a login works",
    ACCOUNT,
    async (session, { account: id }) => {
      const tenant = await ownerOf(session, "email_accounts", id);
      return shown(await resumeAccount(forTenant(session.orm.em, tenant), id, depsOf(session)));
    },
  ),
};

/** What a check of a login needs. The SMTP client is loaded for a check alone. */
const depsOf = ({ env, vault }: Session): AccountDeps => ({
  vault,
  postForm: openTokenPost(env),
  verify: async (login) => (await import("../../activities/smtp/verify.ts")).verifyLogin(env, login),
});

const statusOf = ({ status, lastError, lastReply, refusal }: AccountFacts): string =>
  [
    `${status}${lastError === null || status === "ACTIVE" ? "" : ` (${lastError})`}`,
    ...(lastReply === null ? [] : [`its server said "${lastReply}"`]),
    ...(refusal ? [refusedText(refusal)] : []),
  ].join(", ");

function describe(account: AccountFacts): string {
  const used = (usage: AccountFacts["hour"]) => (usage === null ? "no limit" : `${usage.used} of ${usage.limit}`);
  return [
    `${account.id} sends as ${account.email}, team ${account.teamId}, ${account.environment.toLowerCase()}`,
    `status       ${statusOf(account)}`,
    `checked      ${account.lastCheckedAt ?? "never"}, next at ${account.nextCheckAt ?? "no time: it is not checked"}`,
    `server       ${account.host}:${account.port} (${account.provider}), ${account.connections} of ${account.maxConnections} connections in use`,
    `mails        ${used(account.hour)} this hour, ${used(account.day)} this UTC day`,
    `open sends   ${account.sends.join(", ") || "none"}`,
  ].join("\n");
}

const dataOf = ({ teamId: team, ...account }: AccountFacts) => toJson({ ...account, team });

/** The sources of a login's user name and secrets. */
interface LoginOptions {
  user: string | undefined;
  passwordStdin: boolean;
  oauthClientId: string | undefined;
  oauthTokenUrl: string | undefined;
  oauthStdin: boolean;
}

/** @param usualTokenUrl of the account's provider */
async function readCredentials(
  { env, stdin }: Terminal,
  options: LoginOptions,
  usualTokenUrl: string | undefined,
): Promise<Credentials> {
  const { user: username = null, oauthClientId: clientId, oauthTokenUrl: tokenUrl = usualTokenUrl } = options;
  const refuse = (message: string) => new ApiError("validation_failed", message);
  if (clientId === undefined) {
    if (username === null) return { username, password: null };
    // A line break that the shell adds at the end is not part of the password.
    const password = options.passwordStdin ? (await text(stdin)).replace(/\r?\n$/, "") : env[PASSWORD_VARIABLE];
    return { username, password: password ?? null };
  }
  if (username === null) throw refuse("Give the mailbox's login name with --user.");
  if (tokenUrl === undefined) throw refuse("Give the provider's token endpoint with --oauth-token-url.");
  const [refreshToken, clientSecret] = options.oauthStdin
    ? (await text(stdin)).split(/\r?\n/)
    : [env[REFRESH_TOKEN_VARIABLE], env[CLIENT_SECRET_VARIABLE]];
  if (!refreshToken) throw refuse(`Give the refresh token in ${REFRESH_TOKEN_VARIABLE} or with --oauth-stdin.`);
  return { username, password: null, grant: { tokenUrl, clientId, clientSecret: clientSecret || null, refreshToken } };
}

const shown = ({ id, status }: EmailAccount): Outcome => ({
  text: `Account ${id} is ${status}`,
  data: { account: { id, status } },
});
