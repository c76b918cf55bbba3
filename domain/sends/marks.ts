import { sql } from "kysely";
import type { SendStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { emit } from "../webhooks/emit.ts";
import { campaignRow, newsletterRow } from "../webhooks/records.ts";
import type { SendResource } from "./resource.ts";

export type SendStep = "started" | "paused" | "completed" | "cancelled";

interface MovedSend {
  sendId: string;
  to: SendStatus;
  startedAt: string | null;
  completedAt: string | null;
  /** Why it is paused, see `pauseSend`; null in every other status. */
  reason: string | null;
  step: SendStep | undefined;
}

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
  tenant: Tenant,
  resource: SendResource,
  { sendId, to, startedAt, completedAt, reason, step }: MovedSend,
): Promise<void> {
  const moved = await sql`
    update ${sql.table(`${resource.type}s`)} set status = ${to}, status_reason = ${reason}, started_at = ${startedAt},
      completed_at = ${completedAt}
    where id = ${resource.id} and ${ofTenant(tenant)} and send_id = ${sendId} and status <> 'SENT'`.execute(kysely(em));
  if (step && (moved.numAffectedRows ?? 0n) > 0n) await emitStep(em, tenant, resource, step);
}
