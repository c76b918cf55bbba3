import { type Expression, type RawBuilder, sql } from "kysely";
import { RECIPIENT_STATES, type RecipientState } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";

export type StateCounts = Partial<Record<RecipientState, number>>;

/** By the changes since the ledger was copied, see `SendCount`. They add up to the send's recipients, always. */
export async function readCounts(
  em: EntityManager,
  tenant: Tenant,
  sendId: string,
): Promise<Record<RecipientState, number>> {
  const { rows } = await sql<{ state: RecipientState; count: number }>`
    select state, sum(count)::int as count from (
      select 'QUEUED' as state, recipients as count from sends where id = ${sendId} and ${ofTenant(tenant)}
      union all
      select state, count from send_counts where send_id = ${sendId}
    ) changes group by state`.execute(kysely(em));
  const counts = Object.fromEntries(RECIPIENT_STATES.map((state) => [state, 0])) as Record<RecipientState, number>;
  for (const { state, count } of rows) counts[state] = count;
  return counts;
}

/** SQL: the same as JSON, with the `total`. @param sendId may be a column under any alias but `of_send` and `change` */
export const countsRecord = (sendId: Expression<unknown>): RawBuilder<unknown> => {
  const states = RECIPIENT_STATES.map((state) => {
    const changes = sql`coalesce(sum(change.count) filter (where change.state = ${sql.lit(state)}), 0)`;
    return sql`${sql.lit(state.toLowerCase())}, ${state === "QUEUED" ? sql`of_send.recipients + ${changes}` : changes}`;
  });
  return sql`(select json_build_object('total', of_send.recipients, ${sql.join(states)})
    from sends of_send left join send_counts change on change.send_id = of_send.id
    where of_send.id = ${sendId} group by of_send.recipients)`;
};

/** SQL: how many mails of a send a server accepted, beside `sends s`. */
export const sentCount = sql<number>`(
  select coalesce(sum(c.count), 0)::int from send_counts c where c.send_id = s.id and c.state = 'SENT')`;

/** Makes one row per state of the many that a slice left. Rows that another call folds are left to it. */
export async function foldCounts(em: EntityManager, sendId: string): Promise<void> {
  await sql`
    with folded as (
      delete from send_counts where seq = any(array(
        select seq from send_counts where send_id = ${sendId} for update skip locked))
      returning state, count
    )
    insert into send_counts (send_id, state, count)
    select ${sendId}, state, sum(count) from folded group by state having sum(count) <> 0`.execute(kysely(em));
}

/** By the rows, all of them, for the settlement of credits. `readCounts` costs less. */
export async function countStates(em: EntityManager, sendId: string): Promise<StateCounts> {
  const rows = await kysely(em)
    .selectFrom("send_recipients")
    .select(["state", (eb) => eb.fn.countAll<string>().as("count")])
    .where("send_id", "=", sendId)
    .groupBy("state")
    .execute();
  return Object.fromEntries(rows.map(({ state, count }) => [state, Number(count)]));
}
