import { type RawBuilder, sql } from "kysely";
import { type EntityManager, ofTenant } from "../../db/orm.ts";
import { matchingPeople } from "../audience/segments/segments.ts";
import type { Sequence } from "./state.ts";

/**
 * Compiles the condition of a step to a query for the `id` of those of its people who meet it; null is met by none. Events without a
 * resource are those of the sequence's mails; a subscriber has the custom fields of the contact with their address.
 * @param among queries for the ids and addresses to look among
 * @throws {ApiError} `filter_unsupported` naming the part that cannot be evaluated
 */
export async function peopleWho(
  em: EntityManager,
  { campaignId, listId, teamId, environment }: Sequence,
  among: { ids: RawBuilder<unknown>; emails: RawBuilder<unknown> },
  condition: unknown,
): Promise<RawBuilder<unknown>> {
  if (condition === null) return sql`select null::text as id where false`;
  const tenant = { teamId, environment };
  const people = listId
    ? sql`select p.id, p.email, p.email_spelling, p.first_name, p.last_name, p.created_at, p.updated_at,
        coalesce(k.fields, '{}') as fields, coalesce(k.email_status, 'ACTIVE') as email_status
      from subscribers p left join contacts k on ${ofTenant(tenant, "k")} and k.email = p.email
      where ${ofTenant(tenant, "p")} and p.id in (${among.ids})`
    : sql`select c.* from contacts c where ${ofTenant(tenant, "c")} and c.id in (${among.ids})`;
  return await matchingPeople(em, tenant, condition, { people, emails: among.emails, eventsOf: campaignId });
}
