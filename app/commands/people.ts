import { type Command, Option } from "commander";
import { ENVIRONMENTS, type Environment } from "../../db/entities/shared.ts";
import { forTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type ErasureReport, erasePerson } from "../../domain/erasure/erase.ts";
import { readmitAddress } from "../../domain/erasure/erased-addresses.ts";
import { address, withTeam } from "../options.ts";
import { progressLine } from "../output.ts";
import { type Run, readEnvironment, type Session, type TeamOption, teamOf } from "../session.ts";

interface PersonOptions extends TeamOption {
  environment?: Environment;
}

const withPerson = (command: Command): Command =>
  withTeam(command.argument("<address>", "the person's email address, in any spelling", address)).addOption(
    new Option("--environment <name>", "live or test; both unless given").argParser(readEnvironment),
  );

async function tenantsOf(session: Session, options: PersonOptions): Promise<Tenant[]> {
  const teamId = await teamOf(session, options);
  return ENVIRONMENTS.filter((each) => options.environment === undefined || each === options.environment).map(
    (each) => ({
      teamId,
      environment: each,
    }),
  );
}

/** Erases a person's data, and lets a person who comes back enter again. */
export function personCommands(program: Command, run: Run): void {
  withPerson(program.command("person:erase"))
    .description(
      "show what a team keeps of a person; with --confirm erase it, and refuse the address wherever it enters again",
    )
    .option("--confirm", "erase; without it nothing is changed", false)
    .action((email: string, { confirm, ...options }: PersonOptions & { confirm: boolean }) =>
      run(async (session) => {
        const { orm, vault } = session;
        const progress = progressLine();
        const reports: [Tenant, ErasureReport][] = [];
        try {
          for (const tenant of await tenantsOf(session, options)) {
            const report = await erasePerson(forTenant(orm.em, tenant), vault, tenant, email, {
              dryRun: !confirm,
              onStep: (step) => progress.show(`${tenant.environment}: ${step}`),
            });
            reports.push([tenant, report]);
          }
        } finally {
          progress.clear();
        }
        const lines = reports.flatMap(([{ environment }, report]) => [
          `${environment}:`,
          ...describe(report, confirm).map((line) => `  ${line}`),
        ]);
        return {
          text: (confirm ? lines : [...lines, "Nothing was changed: --confirm erases."]).join("\n"),
          data: {
            erased: confirm,
            environments: reports.map(([{ teamId, environment }, { wasErased, rows, mentions }]) => ({
              team: teamId,
              environment,
              was_erased: wasErased,
              rows,
              mentions,
            })),
          },
        };
      }),
    );

  withPerson(program.command("person:readmit"))
    .description("let an erased address enter again, because its person came back of their own will")
    .action((email: string, options: PersonOptions) =>
      run(async (session) => {
        const { orm, vault } = session;
        const readmitted: Environment[] = [];
        for (const tenant of await tenantsOf(session, options)) {
          const wasErased = await transaction(forTenant(orm.em, tenant), (em) =>
            readmitAddress(em, vault, tenant, email),
          );
          if (wasErased) readmitted.push(tenant.environment);
        }
        const text = readmitted.length > 0 ? `Readmitted in ${readmitted.join(", ")}` : "The address was not erased";
        return { text, data: { readmitted } };
      }),
    );
}

function describe({ wasErased, rows, mentions }: ErasureReport, isDone: boolean): string[] {
  const lines = rows.map(({ table, action, rows: count }) => `${table}: ${count} ${isDone ? "" : "to be "}${action}`);
  return [
    ...(wasErased ? ["The address was erased before."] : []),
    ...(lines.length > 0 ? lines : ["No row holds the person."]),
    ...mentions.map(
      ({ table, id }) => `${table} ${id} names the address in a text of the team: it is left to the team`,
    ),
  ];
}
