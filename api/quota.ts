import { readSlotUse } from "../domain/audience/contact-slots.ts";
import type { RequestContext } from "./context.ts";
import type { QuotaImpact } from "./rest/impact.ts";

/**
 * The team's use of its contact slots, without those that the transaction has taken: for the impact of a dry
 * run, else null, and null where the plan allows any number.
 * @param amount slots that the transaction has taken
 */
export async function slotQuota(ctx: RequestContext, amount: number): Promise<QuotaImpact | null> {
  if (!ctx.dryRun) return null;
  const { limit, used: usedWith } = await readSlotUse(ctx.em, ctx.tenant);
  if (limit === null) return null;
  const used = usedWith - amount;
  return { kind: "contact_slots", amount, used, limit, remaining: Math.max(0, limit - used) };
}
