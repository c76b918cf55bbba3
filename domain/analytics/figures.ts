import { type RawBuilder, sql } from "kysely";
import { FIGURES } from "../../db/entities/analytics.ts";
import { ofTenant, type Tenant } from "../../db/orm.ts";

export interface FigureScope {
  /** All of the tenant unless given. */
  resourceId?: string | undefined;
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
 * A query for a `day` and its figures: a day has several rows, which are summed, because a change that was just made is one.
 */
export function figureRows(tenant: Tenant, { resourceId, from, to }: FigureScope): RawBuilder<unknown> {
  const ofResource = resourceId === undefined ? sql`` : sql`and resource_id = ${resourceId}`;
  return sql`
    select day, ${figureColumns} from analytics_days
    where ${ofTenant(tenant)} and resource_id = ${resourceId ?? WHOLE_TENANT} and day between ${from} and ${to}
    union all
    select day, ${changed} from analytics_changes
    where ${ofTenant(tenant)} ${ofResource} and day between ${from} and ${to}`;
}
