import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";

/** How many contact slots a tenant uses, distinct addresses over its contacts and subscribers. */
export interface SlotUse {
  /** As many as the team's plan allows in each environment; null for any number. */
  limit: number | null;
  used: number;
  /** Null without a limit. */
  remaining: number | null;
}

/** The tenant's use of its contact slots. */
export async function readSlotUse(em: EntityManager, tenant: Tenant): Promise<SlotUse> {
  const { rows } = await sql<{ limit: number | null; used: number }>`
    select contact_slots as limit,
      coalesce((select sum(used) from contact_slot_counts where ${ofTenant(tenant)}), 0)::int as used
    from teams where id = ${tenant.teamId}`.execute(kysely(em));
  const { limit = null, used = 0 } = rows[0] ?? {};
  return { limit, used, remaining: limit === null ? null : Math.max(0, limit - used) };
}
