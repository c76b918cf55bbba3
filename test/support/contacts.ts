import type { ContactFieldType } from "../../db/entities/contact.ts";
import type { Environment } from "../../db/entities/shared.ts";
import { transaction } from "../../db/transaction.ts";
import { createField } from "../../domain/audience/contact-fields.ts";
import type { TestTeam } from "./factories.ts";

/** Declares custom fields of a team's contacts, past the app. */
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
