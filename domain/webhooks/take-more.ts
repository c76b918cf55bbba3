import { sql } from "kysely";
import type { EntityManager } from "../../db/orm.ts";
import { defineStatement, type NamedValues } from "../../db/statements.ts";
import { type DueDelivery, type DueRow, dueColumns, endWithoutEvent } from "./open-attempt.ts";
import { GROUP_SIZE } from "./plan-groups.ts";
import { isWaitingNew, queueKey } from "./waiting.ts";

/**
 * Deliveries that a running group takes at once, at most. A larger number costs less for each. But a kill of the worker lists
 * all that have no outcome as unknown, also those that were not sent.
 */
export const MOST_TAKEN = 2 * GROUP_SIZE;

/**
 * Takes new deliveries that wait for an endpoint into a group of it whose first attempt is under way, oldest first. It takes
 * none when the endpoint was changed since, is off or has failures, a relay forms groups of it, or another process has taken
 * the attempt over.
 */
export async function takeMore(em: EntityManager, group: TakingGroup): Promise<{ due: DueDelivery[]; failed: number }> {
  const { rows } = await take(em, group);
  return endWithoutEvent(em, group.groupId, rows);
}

interface TakingGroup extends NamedValues {
  groupId: string;
  epoch: number;
  /** As `openAttempt` gave it. */
  endpointVersion: string;
  /** Takes at most so many. */
  limit: number;
}

/**
 * The rows are updated by their place in the table. A condition that Postgres can look up in an index would let a plan that was
 * made for an empty table read the whole index instead.
 */
const take = defineStatement(
  (_em, { groupId, epoch, endpointVersion, limit }: TakingGroup) => sql<DueRow>`
    with locked as materialized (
      select h.webhook_id, h.backlog_until
      from webhook_groups g join webhook_endpoints e on e.id = g.webhook_id join webhook_health h on h.webhook_id = e.id
      where g.id = ${groupId} and g.epoch = ${epoch} and g.attempting and g.phase = 'FIRST'
        and e.xmin::text = ${endpointVersion} and e.active and h.consecutive_failures = 0
      for update of g, h skip locked
    ), taken as (
      update webhook_deliveries d set group_id = ${groupId}
      where d.ctid = any(array(
          select w.place from locked l cross join lateral (
            select d.ctid as place from webhook_deliveries d
            where d.webhook_id = l.webhook_id and ${isWaitingNew("d")} and ${queueKey("d")} > l.backlog_until
            order by ${queueKey("d")} limit ${limit}::int) w))
        and coalesce(${isWaitingNew("d")}, false)
      returning d.*
    ), grown as (
      update webhook_groups g set size = least(g.size + t.count, 32767)
      from (select count(*)::int as count from taken) t where g.id = ${groupId} and t.count > 0
    )
    select ${dueColumns} from taken d left join webhook_events v on v.id = d.event_id order by d.id`,
);
