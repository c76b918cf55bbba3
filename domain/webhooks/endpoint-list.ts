import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { healthOf } from "./endpoint-health.ts";

/** States of an endpoint: `off`, when nothing is sent to it, or its health. */
export const ENDPOINT_STATES = ["failing", "off", "working", "unproven"] as const;
export type EndpointState = (typeof ENDPOINT_STATES)[number];

export interface ListedEndpoint extends Tenant {
  id: string;
  url: string;
  state: EndpointState;
  /** Why it is off; null when its owner switched it off, and while it is on. */
  reason: string | null;
  failures: number;
  failingSince: string | null;
}

export interface EndpointFilter {
  states?: readonly EndpointState[] | undefined;
  teamId?: string | undefined;
  limit: number;
}

/** Lists endpoints: those that fail, then those that the platform switched off, then the others; each the newest first. */
export async function listEndpoints(
  em: EntityManager,
  { states, teamId, limit }: EndpointFilter,
): Promise<ListedEndpoint[]> {
  const { rows } = await sql<ListedEndpoint>`
    select l.* from (
      select e.id, e.team_id as "teamId", e.environment, e.url, e.disabled_reason as reason,
        case when e.active then ${healthOf("h")} else 'off' end as state,
        h.consecutive_failures as failures, ${isoInstant(sql`h.failing_since`)} as "failingSince"
      from webhook_endpoints e join webhook_health h on h.webhook_id = e.id
      where ${teamId ?? null}::text is null or e.team_id = ${teamId ?? null}
    ) l
    where ${states ?? null}::text[] is null or l.state = any(${states ?? null}::text[])
    order by l.state <> 'failing', l.reason is null, l.id desc limit ${limit}`.execute(kysely(em));
  return rows;
}
