import { sql } from "kysely";
import type { RecipientState, ResourceType, SendStatus } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { countsRecord } from "./counts.ts";

export interface SendProgress {
  id: string;
  type: ResourceType;
  resource_id: string;
  name: string;
  /** A wave of a sequence. */
  is_sequence: boolean;
  status: SendStatus;
  /** Why it is paused; null when an operator paused it, and in every other status. */
  status_reason: string | null;
  send_at: string;
  send_zone: string | null;
  started_at: string | null;
  completed_at: string | null;
  recipients: Record<Lowercase<RecipientState> | "total", number>;
}

/** Of a tenant without a resource. */
const MAX_SHOWN = 20;

/**
 * The sends that have not ended, or the last one of a resource. The console asks every two seconds: one statement, which
 * reads no recipient.
 */
export async function readProgress(em: EntityManager, tenant: Tenant, resourceId?: string): Promise<SendProgress[]> {
  const isShown =
    resourceId === undefined ? sql`s.status in ('SCHEDULED', 'SENDING', 'PAUSED')` : sql`s.resource_id = ${resourceId}`;
  const { rows } = await sql<SendProgress>`
    select s.id, s.resource_type as type, s.resource_id, coalesce(n.name, c.name) as name,
      coalesce(c.is_drip, false) as is_sequence, s.status, s.pause_reason as status_reason,
      ${isoInstant(sql`s.send_at`)} as send_at, coalesce(n.send_zone, c.send_zone) as send_zone, ${isoInstant(sql`s.started_at`)} as started_at,
      ${isoInstant(sql`s.completed_at`)} as completed_at, ${countsRecord(sql.ref("s.id"))} as recipients
    from sends s
    left join newsletters n on n.id = s.resource_id and ${ofTenant(tenant, "n")}
    left join campaigns c on c.id = s.resource_id and ${ofTenant(tenant, "c")}
    where ${ofTenant(tenant, "s")} and ${isShown}
    order by s.send_at desc, s.id limit ${resourceId === undefined ? MAX_SHOWN : 1}`.execute(kysely(em));
  return rows;
}
