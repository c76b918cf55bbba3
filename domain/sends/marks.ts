import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { Sendable, SendStep } from "./draft.ts";

/** Emits the event of a resource's step, after the change. */
type EmitStep = (em: EntityManager, tenant: Tenant, id: string, step: "scheduled" | SendStep) => Promise<void>;

/** Makes the functions that keep the rows of a kind of resource where their sends are. */
export const marksOf = (
  table: "newsletters" | "campaigns",
  emitStep: EmitStep,
): Pick<Sendable, "markScheduled" | "markMoved"> => ({
  async markScheduled(em, tenant, id, send) {
    await kysely(em)
      .updateTable(table)
      .set({ status: "SCHEDULED", send_id: send.id, send_at: send.sendAt })
      .where("id", "=", id)
      .where(ofTenant(tenant))
      .execute();
    await emitStep(em, tenant, id, "scheduled");
  },
  async markMoved(em, tenant, id, { sendId, to, startedAt, completedAt, reason, step }) {
    const moved = await sql`
      update ${sql.table(table)} set status = ${to}, status_reason = ${reason}, started_at = ${startedAt},
        completed_at = ${completedAt}
      where id = ${id} and ${ofTenant(tenant)} and send_id = ${sendId} and status <> 'SENT'`.execute(kysely(em));
    if (step && (moved.numAffectedRows ?? 0n) > 0n) await emitStep(em, tenant, id, step);
  },
});
