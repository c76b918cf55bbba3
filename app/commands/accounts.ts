import { text } from "node:stream/consumers";
import { type Command, Option } from "commander";
import {
  ACCOUNT_PROVIDERS,
  type AccountProvider,
  type EmailAccount,
  type SmtpSecurity,
} from "../../db/entities/account.ts";
import { forTenant } from "../../db/orm.ts";
import { connectAccount, resumeAccount, suspendAccount } from "../../domain/accounts.ts";
import { address, domains, oneOf, wholeNumber, withTenant } from "../options.ts";
import { type Outcome, ownerOf, type Run, type TenantOptions, tenantOf } from "../session.ts";

const SECURITIES: readonly SmtpSecurity[] = ["none", "starttls", "tls"];
/** The variable that may hold the password: an argument would show in the list of processes. */
const PASSWORD_VARIABLE = "SMTP_PASSWORD";
const DEFAULT_CONNECTIONS = 10;

interface ConnectOptions extends TenantOptions {
  email: string;
  displayName?: string;
  provider: AccountProvider;
  host: string;
  port: number;
  security: SmtpSecurity;
  user?: string;
  passwordStdin?: boolean;
  domains: string[];
  maxConnections: number;
  hourlyLimit?: number;
  dailyLimit?: number;
}

/** Sending accounts. */
export function accountCommands(program: Command, run: Run): void {
  withTenant(program.command("account:connect"))
    .description(`connect an SMTP account; its password comes from ${PASSWORD_VARIABLE} or standard input`)
    .requiredOption("--email <address>", "the address it sends as", address)
    .requiredOption("--host <name>", "SMTP server, on the public Internet unless SMTP_ALLOWED_HOSTS names it")
    .option("--port <port>", "SMTP port", wholeNumber(1, 65_535), 587)
    .addOption(
      new Option("--security <kind>", `${SECURITIES.join(", ")}; a login takes starttls or tls, except on loopback`)
        .default("starttls")
        .argParser(oneOf(SECURITIES)),
    )
    .option("--user <name>", "login name; none means no login")
    .option("--password-stdin", "read the password from standard input")
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
        const password = options.user === undefined ? null : await readPassword(options.passwordStdin === true);
        const fields = {
          email: options.email,
          displayName: options.displayName ?? options.email,
          provider: options.provider,
          allowedDomains: options.domains,
          host: options.host,
          port: options.port,
          security: options.security,
          username: options.user ?? null,
          password,
          maxConnections: options.maxConnections,
          hourlyLimit: options.hourlyLimit ?? null,
          dailyLimit: options.dailyLimit ?? null,
        };
        return shown(await connectAccount(forTenant(session.orm.em, tenant), tenant, fields, session));
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

async function readPassword(fromStdin: boolean): Promise<string | null> {
  if (!fromStdin) return process.env[PASSWORD_VARIABLE] ?? null;
  // A line break that the shell adds at the end is not part of the password.
  return (await text(process.stdin)).replace(/\r?\n$/, "");
}

const shown = ({ id, status }: EmailAccount): Outcome => ({
  text: `Account ${id} is ${status}`,
  data: { account: { id, status } },
});
