import { type RawBuilder, sql } from "kysely";
import type { TrackingMode } from "../../db/entities/team.ts";
import { ofTenant, type Tenant } from "../../db/orm.ts";

/** SQL, of a draft `d` and its team `t`. */
export const draftTracking = (draft: string): RawBuilder<TrackingMode> => sql<TrackingMode>`
  case when not ${sql.ref(`${draft}.tracking`)} then 'OFF'
    when ${sql.ref(`${draft}.tracking`)} and t.tracking = 'OFF' then 'ALL' else t.tracking end`;

/** SQL: whether opens and clicks are counted of a person. @param status of their consent; null where they said nothing */
export const isTrackedBy = (mode: Exclude<TrackingMode, "OFF">, status: RawBuilder<unknown>): RawBuilder<boolean> =>
  mode === "ALL" ? sql`${status} is distinct from 'DENIED'` : sql`${status} is not distinct from 'GRANTED'`;

/**
 * SQL: status of a person's consent, null where they said nothing; one look-up of the index per row. A join would be planned
 * with statistics that do not know the team, and compare each row with all consents.
 * @param people a table with `email`
 */
export const consentOf = (tenant: Tenant, people: string): RawBuilder<unknown> =>
  sql`(select k.status from tracking_consents k where ${ofTenant(tenant, "k")} and k.email = ${sql.ref(`${people}.email`)})`;
