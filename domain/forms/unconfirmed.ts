import { sql } from "kysely";
import { forTenant, kysely, type Tenant } from "../../db/orm.ts";
import { removeSubscriber } from "../audience/lists.ts";
import { deleteMember, lockSubscriber } from "../audience/subscribers.ts";
import type { Pruning } from "../retention/pruning.ts";

export const UNCONFIRMED_DAYS = 30;

/** Each takes some statements, and holds the contact slots of its team. */
const MOST_PEOPLE = 100;

/** Subscriptions that a form made and no person confirmed, with the subscribers who were made for them and are on no other list. */
export const unconfirmedSignUps: Pruning = {
  name: "unconfirmed sign-ups",
  async prune(em, most) {
    const limit = Math.min(most, MOST_PEOPLE);
    const { rows } = await sql<Tenant & { listId: string; id: string; isAlone: boolean }>`
      select s.team_id as "teamId", s.environment, s.list_id as "listId", s.subscriber_id as id,
        p.created_at = s.created_at and not exists (
          select from subscriptions o where o.subscriber_id = p.id and o.list_id <> s.list_id)
          and not exists (select from bin_subscriptions o where o.subscriber_id = p.id) as "isAlone"
      from subscriptions s join subscribers p on p.id = s.subscriber_id
      where s.status = 'PENDING' and s.form_at < now() - make_interval(days => ${UNCONFIRMED_DAYS})
        and s.is_made_by_form and s.signed_up_again_at is null
      order by s.form_at limit ${limit} for update of s, p skip locked`.execute(kysely(em));
    for (const { listId, id, isAlone, ...tenant } of rows) {
      const own = forTenant(em, tenant);
      if (isAlone) await deleteMember(own, tenant, await lockSubscriber(own, id));
      else await removeSubscriber(own, tenant, listId, id);
    }
    return { rows: rows.length, more: rows.length === limit };
  },
};
