import type { ContactFieldType } from "../../db/entities/contact.ts";
import type { Environment } from "../../db/entities/shared.ts";
import type { Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { createField } from "../../domain/audience/contact-fields.ts";
import { type ApiClient, api } from "./api.ts";
import { makeTeam, type TestTeam } from "./factories.ts";

export async function declareFields(
  { em, team }: Pick<TestTeam, "em" | "team">,
  fields: Record<string, ContactFieldType>,
  environment: Environment = "LIVE",
): Promise<void> {
  await transaction(em, async (tx) => {
    for (const [name, type] of Object.entries(fields)) {
      await createField(tx, { teamId: team.id, environment }, name, type);
    }
  });
}

export async function makeTeamWithFields(
  fields: Record<string, ContactFieldType>,
): Promise<{ team: TestTeam; tenant: Tenant; client: ApiClient }> {
  const team = await makeTeam();
  await declareFields(team, fields);
  return { team, tenant: { teamId: team.team.id, environment: "LIVE" }, client: api(team.keys.live) };
}
