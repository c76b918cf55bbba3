import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { emit } from "../webhooks/emit.ts";
import { campaignRow, newsletterRow } from "../webhooks/records.ts";
import type { SendResource } from "./resource.ts";

export type SendStep = "started" | "paused" | "completed" | "cancelled";

const ROWS = { newsletter: newsletterRow, campaign: campaignRow };

const emitStep = (em: EntityManager, tenant: Tenant, { type, id }: SendResource, step: "scheduled" | SendStep) =>
  emit(em, tenant, `${type}.${step}`, ROWS[type](id));

export async function markScheduled(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  send: { id: string; sendAt: Date },
): Promise<void> {
  await kysely(em)
    .updateTable(`${resource.type}s`)
    .set({ status: "SCHEDULED", send_id: send.id, send_at: send.sendAt })
    .where("id", "=", resource.id)
    .where(ofTenant(tenant))
    .execute();
  await emitStep(em, tenant, resource, "scheduled");
}

/** A resource that was SENT stays SENT: later outcomes of its unknown recipients concern the send alone. */
export async function markMoved(
  em: EntityManager,
  { teamId, environment }: Tenant,
  resource: SendResource,
  sendId: string,
  step: SendStep | undefined,
): Promise<void> {
  const tenant = { teamId, environment };
  const moved = await sql`
    update ${sql.table(`${resource.type}s`)} r
    set status = s.status, status_reason = s.pause_reason, started_at = s.started_at, completed_at = s.completed_at
    from sends s
    where s.id = ${sendId} and ${ofTenant(tenant, "s")} and r.id = s.resource_id and ${ofTenant(tenant, "r")}
      and r.send_id = s.id and r.status <> 'SENT'`.execute(kysely(em));
  if (step && (moved.numAffectedRows ?? 0n) > 0n) await emitStep(em, tenant, resource, step);
}
