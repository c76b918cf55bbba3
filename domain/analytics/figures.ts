import { type RawBuilder, sql } from "kysely";
import { FIGURES } from "../../db/entities/analytics.ts";
import { ofTenant, type Tenant } from "../../db/orm.ts";

export interface FigureScope {
  /** All of the tenant unless given. */
  resourceIds?: readonly string[] | undefined;
  /** In UTC. */
  from: RawBuilder<unknown>;
  /** In UTC. */
  to: RawBuilder<unknown>;
}

/** `resource_id` of the days of all of a tenant, and of changes that concern no resource. */
export const WHOLE_TENANT = "";

/** SQL: mails that were accepted and did not come back. */
export const DELIVERED = sql<number>`sent - bounced_hard - bounced_soft`;

/** The columns of `analytics_days`. */
export const figureColumns = sql.join(FIGURES.map((figure) => sql.id(figure)));

/** The same for a row of `analytics_changes`. */
const changed = sql.join(
  FIGURES.map((figure) => sql`case figure when ${sql.lit(figure)} then count else 0 end as ${sql.id(figure)}`),
);

/**
 * A query for a `resource_id`, a `day` and its figures: a day has several rows, which are summed, because a change that was just made is one.
 */
export function figureRows(tenant: Tenant, { resourceIds, from, to }: FigureScope): RawBuilder<unknown> {
  const ofResources = resourceIds ? sql`and resource_id = any(${resourceIds}::text[])` : sql``;
  return sql`
    select resource_id, day, ${figureColumns} from analytics_days
    where ${ofTenant(tenant)} and resource_id = any(${resourceIds ?? [WHOLE_TENANT]}::text[]) and day between ${from} and ${to}
    union all
    select resource_id, day, ${changed} from analytics_changes
    where ${ofTenant(tenant)} ${ofResources} and day between ${from} and ${to}`;
}
