import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import type { Admitted } from "../access/authenticate.ts";
import { readSlotUse, type SlotUse } from "../audience/contact-slots.ts";
import { readSendCap } from "../sends/plan/gates.ts";
import { countEndpoints } from "../webhooks/endpoints.ts";
import { type CreditUsage, PERIOD_END, PERIOD_START, readCreditUsage } from "./credits.ts";
import { endpointLimit, readPlanLimits } from "./plans.ts";

export interface LimitUse {
  limit: number;
  used: number;
  remaining: number;
}

export interface Usage {
  /** The calendar month in UTC, in ISO 8601. */
  period: { start: string; end: string };
  requests: LimitUse;
  credits: CreditUsage;
  slots: SlotUse;
  endpoints: LimitUse;
  /** Of the key and its rotations; an OAuth client sends none. */
  sendsToday: LimitUse;
}

const useOf = (limit: number, used: number): LimitUse => ({ limit, used, remaining: Math.max(0, limit - used) });

/** The cost does not depend on how much they have used. */
export async function readUsage(em: EntityManager, tenant: Tenant, access: Admitted): Promise<Usage> {
  const { caller, allowance } = access;
  const limits = await readPlanLimits(em, tenant.teamId);
  const cap = caller.kind === "api_key" ? await readSendCap(em, caller) : undefined;
  return {
    period: await readPeriod(em),
    // The plan's limit is shown, although the caller may have less left: the smaller of it and the service's limit applies.
    requests: {
      limit: limits.requestsPerMinute ?? allowance.limit,
      used: allowance.limit - allowance.remaining,
      remaining: allowance.remaining,
    },
    credits: await readCreditUsage(em, tenant),
    slots: await readSlotUse(em, tenant),
    endpoints: useOf(endpointLimit(limits), await countEndpoints(em, tenant)),
    sendsToday: useOf(cap?.limit ?? 0, cap?.usedToday ?? 0),
  };
}

async function readPeriod(em: EntityManager): Promise<Usage["period"]> {
  const { rows } = await sql<Usage["period"]>`
    select ${isoInstant(PERIOD_START)} as start, ${isoInstant(PERIOD_END)} as end`.execute(kysely(em));
  const [period] = rows;
  if (!period) throw new Error("the database gave no period");
  return period;
}
