import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { afterCommit } from "../../db/transaction.ts";
import { ringRelay } from "./bell.ts";
import type { EventName } from "./catalogue.ts";
import type { EventObjects } from "./objects.ts";

/**
 * Whether somebody is to get events of a type: an endpoint that is active, or that the platform switched off, whose
 * events are kept for it. One that was stopped by hand gets nothing written.
 */
export const isWanted = ({ teamId, environment }: Tenant, type: EventName | RawBuilder<string>): RawBuilder<boolean> =>
  sql<boolean>`exists (
    select from webhook_endpoints w
    where w.team_id = ${teamId} and w.environment = ${environment} and ${type} = any(w.events)
      and (w.active or w.disabled_reason = 'delivery_failures'))`;

/**
 * Notes events in the transaction of the change they tell of: both commit or neither does. Writes nothing when nobody
 * subscribed. The relay turns them into deliveries after the commit.
 * @param objects the records as they stand after the change, one event each
 * @throws {Error} outside of a transaction
 */
export async function emit<Name extends EventName>(
  em: EntityManager,
  tenant: Tenant,
  type: Name,
  objects: readonly EventObjects[Name][],
): Promise<void> {
  if (objects.length === 0) return;
  const { numAffectedRows } = await sql`
    insert into webhook_outbox (team_id, environment, type, objects)
    select ${tenant.teamId}, ${tenant.environment}, ${type}, ${JSON.stringify(objects)}
    where ${isWanted(tenant, type)}`.execute(kysely(em));
  if (numAffectedRows) afterCommit(em, ringRelay, () => ringRelay(em));
}
