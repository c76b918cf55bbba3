import { text } from "node:stream/consumers";
import { type Command, Option } from "commander";
import {
  ACCOUNT_PROVIDERS,
  ACCOUNT_STATUSES,
  type AccountProvider,
  type AccountStatus,
  type EmailAccount,
  type SmtpSecurity,
} from "../../db/entities/account.ts";
import { forTenant } from "../../db/orm.ts";
import {
  type Credentials,
  connectAccount,
  readAccount,
  replaceCredentials,
  resumeAccount,
  suspendAccount,
} from "../../domain/accounts/accounts.ts";
import { ApiError } from "../../domain/errors.ts";
import { type AccountFacts, listAccounts, readAccountFacts } from "../../domain/sends/account-inspection.ts";
import { absoluteUrl, address, domains, listOf, oneOf, wholeNumber, withTenant } from "../options.ts";
import { counted, refusalToJson, refusedText } from "../output.ts";
import { type Outcome, ownerOf, type Run, type TenantOptions, type Terminal, teamOf, tenantOf } from "../session.ts";

const SECURITIES: readonly SmtpSecurity[] = ["none", "starttls", "tls"];
/** The variable that may hold the password: an argument would show in the list of processes. */
const PASSWORD_VARIABLE = "SMTP_PASSWORD";
const DEFAULT_CONNECTIONS = 10;

/** Variables that may hold the secrets of an OAuth grant, for the same reason. */
const REFRESH_TOKEN_VARIABLE = "OAUTH_REFRESH_TOKEN";
const CLIENT_SECRET_VARIABLE = "OAUTH_CLIENT_SECRET";
/**
 * Token endpoints of hosted mailboxes: https://developers.google.com/identity/protocols/oauth2/web-server and
 * https://learn.microsoft.com/entra/identity-platform/v2-oauth2-auth-code-flow.
 */
const TOKEN_URLS: Partial<Record<AccountProvider, string>> = {
  GOOGLE: "https://oauth2.googleapis.com/token",
  MICROSOFT: "https://login.microsoftonline.com/common/oauth2/v2.0/token",
};

/** The sources of a login's user name and secrets. */
interface LoginOptions {
  user?: string;
  passwordStdin?: boolean;
  oauthClientId?: string;
  oauthTokenUrl?: string;
  oauthStdin?: boolean;
}

interface ConnectOptions extends TenantOptions, LoginOptions {
  email: string;
  displayName?: string;
  provider: AccountProvider;
  host: string;
  port: number;
  security: SmtpSecurity;
  pending?: boolean;
  domains: string[];
  maxConnections: number;
  hourlyLimit?: number;
  dailyLimit?: number;
}

/** Sending accounts. */
export function accountCommands(program: Command, run: Run): void {
  withLogin(withTenant(program.command("account:connect")))
    .description("connect an SMTP account")
    .requiredOption("--email <address>", "the address it sends as", address)
    .requiredOption("--host <name>", "SMTP server, on the public Internet unless SMTP_ALLOWED_HOSTS names it")
    .option("--port <port>", "SMTP port", wholeNumber(1, 65_535), 587)
    .addOption(
      new Option("--security <kind>", `${SECURITIES.join(", ")}; a login takes starttls or tls, except on loopback`)
        .default("starttls")
        .argParser(oneOf(SECURITIES)),
    )
    .option("--pending", "do not log in now: the account is PENDING until a scheduled check has logged in")
    .option("--display-name <name>", "its name; the address unless given")
    .addOption(
      new Option("--provider <name>", ACCOUNT_PROVIDERS.join(", "))
        .default("SMTP_OTHER")
        .argParser(oneOf(ACCOUNT_PROVIDERS)),
    )
    .option("--domains <domains>", "comma-separated domains it may send for besides its own address", domains, [])
    .option("--max-connections <count>", "connections at once", wholeNumber(1, 1_000), DEFAULT_CONNECTIONS)
    .option("--hourly-limit <mails>", "mails an hour", wholeNumber(1, 2_147_483_647))
    .option("--daily-limit <mails>", "mails a UTC day", wholeNumber(1, 2_147_483_647))
    .action((options: ConnectOptions) =>
      run(async (session) => {
        const tenant = await tenantOf(session, options);
        const credentials = await readCredentials(session.terminal, options, TOKEN_URLS[options.provider]);
        const fields = {
          email: options.email,
          displayName: options.displayName ?? options.email,
          provider: options.provider,
          allowedDomains: options.domains,
          host: options.host,
          port: options.port,
          security: options.security,
          ...credentials,
          maxConnections: options.maxConnections,
          hourlyLimit: options.hourlyLimit ?? null,
          dailyLimit: options.dailyLimit ?? null,
        };
        const isPending = options.pending === true;
        return shown(await connectAccount(forTenant(session.orm.em, tenant), tenant, fields, session, { isPending }));
      }),
    );

  readingCommands(program, run);

  withLogin(program.command("account:credentials"))
    .description("give an account other credentials, once a login with them works; also one whose access was revoked")
    .requiredOption("--account <id>", "the account")
    .action(({ account: id, ...options }: LoginOptions & { account: string }) =>
      run(async (session) => {
        const em = forTenant(session.orm.em, await ownerOf(session, "email_accounts", id));
        const { provider } = await readAccount(em, id);
        const credentials = await readCredentials(session.terminal, options, TOKEN_URLS[provider]);
        return shown(await replaceCredentials(em, id, credentials, session));
      }),
    );

  program
    .command("account:suspend")
    .description("take an account out of service; sends that use it wait")
    .requiredOption("--account <id>", "the account")
    .action(({ account: id }: { account: string }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "email_accounts", id);
        return shown(await suspendAccount(forTenant(session.orm.em, tenant), id));
      }),
    );

  program
    .command("account:resume")
    .description("put an account back into service, once a login works")
    .requiredOption("--account <id>", "the account")
    .action(({ account: id }: { account: string }) =>
      run(async (session) => {
        const tenant = await ownerOf(session, "email_accounts", id);
        return shown(await resumeAccount(forTenant(session.orm.em, tenant), id, session));
      }),
    );
}

interface ListOptions {
  team?: string;
  status?: AccountStatus[];
}

/** The commands that read accounts. */
function readingCommands(program: Command, run: Run): void {
  program
    .command("account:list")
    .description("list sending accounts: those that fail first")
    .option("--team <id>", "of one team; all unless given")
    .option("--status <statuses>", `comma-separated, of ${ACCOUNT_STATUSES.join(", ")}`, listOf(ACCOUNT_STATUSES))
    .action(({ team, status: statuses }: ListOptions) =>
      run(async (session) => {
        const teamId = team === undefined ? undefined : await teamOf(session, { team });
        const accounts = await listAccounts(session.orm.em.fork(), { teamId, statuses });
        return { text: accounts.map(lineOf).join("\n") || "No account", data: { accounts: accounts.map(toJson) } };
      }),
    );

  program
    .command("account:show")
    .description("print a sending account: its status and why, its checks, limits and the sends that it mails")
    .argument("<id>", "the account")
    .action((id: string) =>
      run(async ({ orm }) => {
        const account = await readAccountFacts(orm.em.fork(), id);
        return { text: describe(account), data: { account: toJson(account) } };
      }),
    );
}

const statusOf = ({ status, lastError, refusal }: AccountFacts): string =>
  [
    `${status}${lastError === null || status === "ACTIVE" ? "" : ` (${lastError})`}`,
    ...(refusal ? [refusedText(refusal)] : []),
  ].join(", ");

const lineOf = (account: AccountFacts): string =>
  `${account.id}  ${account.teamId}  ${account.email}  ${statusOf(account)}  ${counted(account.sends.length, "open send")}`;

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

const toJson = (account: AccountFacts) => ({
  id: account.id,
  team: account.teamId,
  environment: account.environment,
  email: account.email,
  provider: account.provider,
  status: account.status,
  last_error: account.lastError,
  refusal: account.refusal && refusalToJson(account.refusal),
  last_checked_at: account.lastCheckedAt,
  next_check_at: account.nextCheckAt,
  host: account.host,
  port: account.port,
  max_connections: account.maxConnections,
  connections: account.connections,
  hour: account.hour,
  day: account.day,
  sends: account.sends,
});

/** Adds the options of a login. */
const withLogin = (command: Command): Command =>
  command
    .option("--user <name>", `login name, with the password in ${PASSWORD_VARIABLE}; without it there is no login`)
    .option("--password-stdin", "read the password from standard input")
    .option(
      "--oauth-client-id <id>",
      `log in by XOAUTH2 with a refresh token in ${REFRESH_TOKEN_VARIABLE}, and the client's secret, if it has one, in ${CLIENT_SECRET_VARIABLE}`,
    )
    .option("--oauth-token-url <url>", "the provider's token endpoint; known of GOOGLE and MICROSOFT", absoluteUrl)
    .option("--oauth-stdin", "read the refresh token, and on a second line the client's secret, from standard input");

/** @param usualTokenUrl of the account's provider */
async function readCredentials(
  terminal: Terminal,
  options: LoginOptions,
  usualTokenUrl: string | undefined,
): Promise<Credentials> {
  const { user: username = null, oauthClientId: clientId } = options;
  const refuse = (message: string) => new ApiError("validation_failed", message);
  if (clientId === undefined) {
    const password = username === null ? null : await readPassword(terminal, options.passwordStdin === true);
    return { username, password };
  }
  if (username === null) throw refuse("Give the mailbox's login name with --user.");
  const tokenUrl = options.oauthTokenUrl ?? usualTokenUrl;
  if (tokenUrl === undefined) throw refuse("Give the provider's token endpoint with --oauth-token-url.");
  const [refreshToken, clientSecret] = await readSecrets(terminal, options.oauthStdin === true);
  if (!refreshToken) throw refuse(`Give the refresh token in ${REFRESH_TOKEN_VARIABLE} or with --oauth-stdin.`);
  return { username, password: null, grant: { tokenUrl, clientId, clientSecret: clientSecret || null, refreshToken } };
}

/** Refresh token and client secret. */
async function readSecrets({ env, stdin }: Terminal, fromStdin: boolean): Promise<(string | undefined)[]> {
  if (!fromStdin) return [env[REFRESH_TOKEN_VARIABLE], env[CLIENT_SECRET_VARIABLE]];
  return (await text(stdin)).split(/\r?\n/);
}

async function readPassword({ env, stdin }: Terminal, fromStdin: boolean): Promise<string | null> {
  if (!fromStdin) return env[PASSWORD_VARIABLE] ?? null;
  // A line break that the shell adds at the end is not part of the password.
  return (await text(stdin)).replace(/\r?\n$/, "");
}

const shown = ({ id, status }: EmailAccount): Outcome => ({
  text: `Account ${id} is ${status}`,
  data: { account: { id, status } },
});
