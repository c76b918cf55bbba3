import { Command, CommanderError, Help, Option } from "commander";
import type { AppCommand, Commands, Parameter } from "./command.ts";
import { errorJson, lineOf } from "./output.ts";
import { recordCommand, type Session, type Terminal, withSession } from "./session.ts";

type Loads = () => Promise<{ commands: Commands }>;

const deliveries: Loads = () => import("./commands/deliveries.ts");
const drafts: Loads = () => import("./commands/drafts.ts");
const teams: Loads = () => import("./commands/teams.ts");

/** The commands by the first word of their names: a command loads no others, so that it starts soon. */
const GROUPS: Readonly<Record<string, readonly Loads[]>> = {
  team: [teams],
  member: [teams],
  plan: [() => import("./commands/plans.ts")],
  key: [() => import("./commands/keys.ts")],
  token: [() => import("./commands/tokens.ts")],
  account: [() => import("./commands/accounts.ts")],
  domain: [() => import("./commands/domains.ts")],
  list: [drafts],
  newsletter: [drafts],
  campaign: [drafts, () => import("./commands/campaigns.ts")],
  credits: [() => import("./commands/credits.ts")],
  complaint: [() => import("./commands/complaints.ts")],
  provider: [() => import("./commands/providers.ts")],
  sequence: [() => import("./commands/sequences.ts")],
  send: [() => import("./commands/sends.ts")],
  confirmation: [() => import("./commands/confirmations.ts")],
  webhook: [() => import("./commands/webhooks.ts"), deliveries, () => import("./commands/listen.ts")],
  delivery: [deliveries],
  field: [() => import("./commands/fields.ts")],
  segment: [() => import("./commands/segments.ts")],
  import: [() => import("./commands/import.ts")],
  person: [() => import("./commands/people.ts")],
  secrets: [() => import("./commands/secrets.ts")],
};

/** The commands among which the arguments name one: all of them for help. */
async function commandsFor(args: readonly string[]): Promise<[string, AppCommand][]> {
  const [group = ""] = args.find((arg) => !arg.startsWith("-"))?.split(":") ?? [];
  const own = GROUPS[group];
  const loads = own ?? [...new Set(Object.values(GROUPS).flat())];
  const loaded = await Promise.all(loads.map((load) => load()));
  const declared = loaded.flatMap(({ commands }) => Object.entries(commands));
  return own ? declared.filter(([name]) => name.split(":")[0] === group) : declared;
}

const kebab = (key: string): string => key.replace(/[A-Z]/g, (letter) => `-${letter.toLowerCase()}`);

function optionOf(key: string, { name = key, value, description, parse, ...rest }: Parameter<unknown>): Option {
  const built = new Option(`--${kebab(name)}${value === undefined ? "" : ` ${value}`}`, description);
  if (parse) built.argParser(parse);
  if (rest.fallback !== undefined) built.default(rest.fallback);
  if (rest.conflicts) built.conflicts(rest.conflicts);
  return built.makeOptionMandatory(rest.isRequired ?? false);
}

/** @param run is called with the values of the parameters */
function declare(program: Command, name: string, declared: AppCommand, run: Run): void {
  const built = program.command(name).description(declared.description);
  const parameters = Object.entries(declared.parameters);
  const names = parameters.flatMap(([key, { kind }]) => (kind === "argument" ? [key] : []));
  for (const [key, parameter] of parameters) {
    const { kind, value = `<${kebab(key)}>`, description, parse } = parameter;
    if (kind === "option") built.addOption(optionOf(key, parameter));
    else if (parse) built.argument(value, description, parse);
    else built.argument(value, description);
  }
  built.action(() => {
    const given = built.opts();
    const values = parameters.map(([key, { kind, name: own = key, value }]) => {
      if (kind === "argument") return [key, built.processedArgs[names.indexOf(key)]];
      return [key, given[own] ?? (value === undefined ? false : undefined)];
    });
    return run(declared, Object.fromEntries(values), name);
  });
}

/** Carries a command out. */
export type Run = (command: AppCommand, values: object, name: string) => Promise<void>;

/**
 * Parses arguments and runs the command that they name.
 * @throws {CommanderError} after help, and when the arguments are wrong, which has been written; what the command throws
 */
export async function parseCommand(args: readonly string[], terminal: Terminal, run: Run): Promise<void> {
  const { stdout, stderr } = terminal;
  const plainHelp = new Help();
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
  if (isJson(args)) {
    const outputError = (text: string, write: (text: string) => void) => {
      const message = text.trim().replace(/^error: /, "");
      write(`${JSON.stringify({ error: { code: "validation_failed", message } })}\n`);
    };
    program.configureOutput({ outputError });
  } else program.showHelpAfterError("(add --help for the options)");
  for (const [name, declared] of await commandsFor(args)) declare(program, name, declared, run);
  await program.parseAsync(args, { from: "user" });
}

/** Known before the options are read, because these may be wrong. */
const isJson = (args: readonly string[]): boolean => args.includes("--json");

/**
 * Runs a command of the app.
 * @param args those after the name of the program
 * @returns the exit code: 1 after an error, which is written in one line
 */
export async function runCommand(args: readonly string[], terminal: Terminal): Promise<number> {
  const { stdout, stderr } = terminal;
  try {
    await parseCommand(args, terminal, async ({ isAdmitted, ...command }, values, name) => {
      const options = { isJson: isJson(args), isAdmitted };
      const work = async (session: Session) => {
        const outcome = await command.run(session, values);
        // The command has committed, and its outcome may hold a secret that is shown once.
        const warn = (error: unknown) => stderr.write(`The audit log has no entry of this: ${lineOf(error)}\n`);
        if (outcome) await recordCommand(session, name, values, outcome).catch(warn);
        return outcome;
      };
      const outcome = await withSession(terminal, work, options);
      if (outcome) stdout.write(`${isJson(args) ? JSON.stringify(outcome.data) : outcome.text}\n`);
    });
    return 0;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode;
    stderr.write(`${isJson(args) ? JSON.stringify(errorJson(error)) : `error: ${lineOf(error)}`}\n`);
    return 1;
  }
}
