import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { newId } from "../../domain/ids.ts";

/**
 * Records a send of a newsletter that has ended, past the service, so that no worker takes it up. The caller adds its
 * recipients to the ledger.
 * @returns its id
 */
export async function recordSend(
  em: EntityManager,
  { teamId, environment }: Tenant,
  newsletterId: string,
  recipients: number,
  { tracking = false } = {},
): Promise<string> {
  const id = newId("send");
  await kysely(em.fork())
    .insertInto("sends")
    .values({
      id,
      team_id: teamId,
      environment,
      resource_type: "newsletter",
      resource_id: newsletterId,
      api_key_id: "key_x",
      status: "SENT",
      recipients,
      credits_reserved: recipients,
      cap_limit: recipients,
      cap_used_today: recipients,
      tracking,
      send_at: sql`now()`,
      settled_at: sql`now()`,
    })
    .execute();
  return id;
}
