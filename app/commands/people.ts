import { ENVIRONMENTS, type Environment } from "../../db/entities/shared.ts";
import { forTenant, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { type ErasureReport, erasePerson } from "../../domain/erasure/erase.ts";
import { readmitAddress } from "../../domain/erasure/erased-addresses.ts";
import { argument, type Commands, command, flag, OF_TEAM, option } from "../command.ts";
import { address, oneOf } from "../options.ts";
import { progressLine } from "../output.ts";
import { type Session, tenantOf } from "../session.ts";

const PERSON = {
  address: argument("the person's email address, in any spelling", address),
  ...OF_TEAM,
  environment: option("<name>", "live or test; both unless given", oneOf(ENVIRONMENTS)),
};

async function tenantsOf(
  session: Session,
  { environment, ...team }: { team: string | undefined; environment: Environment | undefined },
): Promise<Tenant[]> {
  const environments = environment ? [environment] : ENVIRONMENTS;
  return Promise.all(environments.map((each) => tenantOf(session, { ...team, environment: each })));
}

/** Erases a person's data, and lets a person who comes back enter again. */
export const commands: Commands = {
  "person:erase": command(
    "show what a team keeps of a person; with --confirm erase it, and refuse the address wherever it enters again",
    { ...PERSON, confirm: flag("erase; without it nothing is changed") },
    async (session, { address: email, confirm, ...options }) => {
      const progress = progressLine();
      const reports: [Tenant, ErasureReport][] = [];
      try {
        for (const tenant of await tenantsOf(session, options)) {
          const report = await erasePerson(forTenant(session.orm.em, tenant), session.vault, tenant, email, {
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
    },
  ),

  "person:readmit": command(
    "let an erased address enter again, because its person came back of their own will",
    PERSON,
    async (session, { address: email, ...options }) => {
      const readmitted: Environment[] = [];
      for (const tenant of await tenantsOf(session, options)) {
        const wasErased = await transaction(forTenant(session.orm.em, tenant), (em) =>
          readmitAddress(em, session.vault, tenant, email),
        );
        if (wasErased) readmitted.push(tenant.environment);
      }
      const text = readmitted.length > 0 ? `Readmitted in ${readmitted.join(", ")}` : "The address was not erased";
      return { text, data: { readmitted } };
    },
  ),
};

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
