import { sql } from "kysely";
import { columnsOf } from "../../db/columns.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { Vault } from "../secrets/crypto.ts";
import { emit } from "../webhooks/emit.ts";
import { restoreOptOuts, subscriptionRows } from "./opt-outs.ts";
import { askForConfirmationAgain } from "./subscribers.ts";

const keptColumns = (em: EntityManager) =>
  columnsOf(em).flatMap(({ table, column }) =>
    table === "bin_subscriptions" && column !== "has_moved" ? [column] : [],
  );

/** Moves the subscriptions of a list that the caller has locked. @returns how many there were */
export async function binSubscriptions(em: EntityManager, tenant: Tenant, listId: string): Promise<number> {
  const columns = sql.join(keptColumns(em).map((column) => sql.ref(column)));
  const { numAffectedRows = 0n } = await sql`
    with gone as (delete from subscriptions where ${ofTenant(tenant)} and list_id = ${listId} returning ${columns})
    insert into bin_subscriptions (${columns}) select ${columns} from gone`.execute(kysely(em));
  return Number(numAffectedRows);
}

/** A statement with so many takes about a second. */
const BATCH = 20_000;

/**
 * Moves them back, once the list is there again: of those who are subscribers still, as they were, or as opt-outs since have made them.
 * A subscriber with another address meanwhile is asked, and has the opt-outs of that one, as on a list that was not deleted.
 * @param deletedAt of the list, as text of Postgres
 */
export async function restoreSubscriptions(
  em: EntityManager,
  vault: Vault,
  tenant: Tenant,
  { id: listId, deletedAt }: { id: string; deletedAt: string },
): Promise<void> {
  const ofList = sql`${ofTenant(tenant, "s")} and s.list_id = ${listId}`;
  const columns = keptColumns(em);
  // Figures count opt-outs by their last change. Clients know those of before: no event told of their end.
  const changedAt = sql`case when t.status = 'UNSUBSCRIBED' and t.unsubscribed_at < ${deletedAt}::timestamptz then t.updated_at else now() end`;
  const values = columns.map((column) => (column === "updated_at" ? changedAt : sql.ref(`t.${column}`)));
  const ids: string[] = [];
  for (let after = "", isLast = false; !isLast; ) {
    const { rows: found } = await sql<{ id: string }>`
      select s.subscriber_id as id from bin_subscriptions s where ${ofList} and s.subscriber_id > ${after}
      order by s.subscriber_id offset ${BATCH - 1}::int limit 1`.execute(kysely(em));
    const last = found[0]?.id;
    const upTo = last === undefined ? sql`true` : sql`s.subscriber_id <= ${last}`;
    // Postgres has no statistics of rows that were moved of late: ranges, and a look-up for each row, leave it no other plan.
    const { rows } = await sql<{ moved: string[] }>`
      with taken as (
        delete from bin_subscriptions s where ${ofList} and s.subscriber_id > ${after} and ${upTo}
        returning ${sql.join([...columns, "has_moved"].map((column) => sql.ref(`s.${column}`)))}
      ), restored as (
        insert into subscriptions (${sql.join(columns.map((column) => sql.ref(column)))})
        select ${sql.join(values)} from taken t
        cross join lateral (select from subscribers p where p.id = t.subscriber_id for key share) p
      ) select array(select subscriber_id from taken where has_moved) as moved`.execute(kysely(em));
    ids.push(...(rows[0]?.moved ?? []));
    isLast = last === undefined;
    after = last ?? after;
  }
  const isMember = sql`s.list_id = ${listId} and s.status <> 'UNSUBSCRIBED'`;
  await emit(em, tenant, "subscription.created", subscriptionRows(tenant, isMember));
  if (ids.length === 0) return;
  const { rows: moved } = await sql<{ id: string; email: string }>`
    select id, email from subscribers where ${ofTenant(tenant)} and id = any(${ids}::text[])`.execute(kysely(em));
  await restoreOptOuts(em, vault, tenant, moved);
  await askForConfirmationAgain(
    em,
    tenant,
    sql<boolean>`s.list_id = ${listId} and s.subscriber_id = any(${ids}::text[])`,
  );
}
