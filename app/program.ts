import { Command, CommanderError, Help } from "commander";
import { smtpLimits } from "../activities/smtp/limits.ts";
import { verifyAccount } from "../activities/smtp/verify.ts";
import type { VerifyLogin } from "../domain/accounts/accounts.ts";
import { openSmtpGuard } from "../domain/mail/smtp-guard.ts";
import { accountCommands } from "./commands/accounts.ts";
import { analyticsCommands } from "./commands/analytics.ts";
import { campaignCommands } from "./commands/campaigns.ts";
import { confirmationCommands } from "./commands/confirmations.ts";
import { deliveryCommands } from "./commands/deliveries.ts";
import { domainCommands } from "./commands/domains.ts";
import { fieldCommands } from "./commands/fields.ts";
import { importCommand } from "./commands/import.ts";
import { keyCommands } from "./commands/keys.ts";
import { listenCommand } from "./commands/listen.ts";
import { newsletterCommands } from "./commands/newsletters.ts";
import { personCommands } from "./commands/people.ts";
import { planCommands } from "./commands/plans.ts";
import { providerCommands } from "./commands/providers.ts";
import { secretCommands } from "./commands/secrets.ts";
import { segmentCommands } from "./commands/segments.ts";
import { sendCommands } from "./commands/sends.ts";
import { teamCommands } from "./commands/teams.ts";
import { tokenCommands } from "./commands/tokens.ts";
import { webhookCommands } from "./commands/webhooks.ts";
import { errorJson, lineOf } from "./output.ts";
import { type Run, type Terminal, withSession } from "./session.ts";
import type { AppSettings } from "./settings.ts";

const realLogin =
  ({ env }: AppSettings): VerifyLogin =>
  ({ accessToken, ...login }) =>
    verifyAccount({
      ...login,
      accessToken: accessToken === undefined ? undefined : async () => accessToken,
      guard: openSmtpGuard(env),
      name: env.SMTP_HELO_NAME,
      limits: smtpLimits(env),
    });

/** Each adds the commands of one matter. */
const GROUPS = [
  teamCommands,
  planCommands,
  keyCommands,
  tokenCommands,
  accountCommands,
  domainCommands,
  newsletterCommands,
  analyticsCommands,
  providerCommands,
  campaignCommands,
  sendCommands,
  confirmationCommands,
  webhookCommands,
  deliveryCommands,
  listenCommand,
  fieldCommands,
  segmentCommands,
  importCommand,
  personCommands,
  secretCommands,
];

const plainHelp = new Help();

/**
 * Runs a command of the app.
 * @param args those after the name of the program
 * @returns the exit code: 1 after an error, which is written in one line
 */
export async function runCommand(args: readonly string[], terminal: Terminal): Promise<number> {
  const { stdout, stderr } = terminal;
  const program = new Command("app")
    .description(
      "Mailkeel's command line: teams, plans, keys, sending accounts, the targets of newsletters and campaigns, their sends, webhooks, imports",
    )
    .option("--json", "print one JSON object")
    .configureHelp({
      showGlobalOptions: true,
      optionDescription: (option) => `${plainHelp.optionDescription(option)}${option.mandatory ? " (required)" : ""}`,
    })
    .configureOutput({ writeOut: (text) => stdout.write(text), writeErr: (text) => stderr.write(text) })
    .exitOverride();
  // Known before the options are read, because these may be wrong.
  const isJson = args.includes("--json");
  if (isJson) {
    const outputError = (text: string, write: (text: string) => void) => {
      const message = text.trim().replace(/^error: /, "");
      write(`${JSON.stringify({ error: { code: "validation_failed", message } })}\n`);
    };
    program.configureOutput({ outputError });
  } else program.showHelpAfterError("(add --help for the options)");
  const run: Run = async (work, options) => {
    const outcome = await withSession(terminal, realLogin, work, options);
    if (outcome) stdout.write(`${isJson ? JSON.stringify(outcome.data) : outcome.text}\n`);
  };
  for (const add of GROUPS) add(program, run);
  try {
    await program.parseAsync(args, { from: "user" });
    return 0;
  } catch (error) {
    // It has been written: help, or why the arguments are wrong.
    if (error instanceof CommanderError) return error.exitCode;
    stderr.write(`${isJson ? JSON.stringify(errorJson(error)) : `error: ${lineOf(error)}`}\n`);
    return 1;
  }
}
