import type { z } from "zod";
import { PLAN_LIMITS } from "../../domain/teams/plans.ts";
import type { Usage } from "../../domain/teams/usage.ts";
import type { usage } from "./schema.ts";

export function presentUsage({
  period,
  requests,
  credits,
  slots,
  endpoints,
  sendsToday,
}: Usage): z.input<typeof usage> {
  return {
    object: "usage",
    id: period.start.slice(0, "2026-11".length),
    period,
    limits: {
      [PLAN_LIMITS.requestsPerMinute.name]: requests,
      "email.credits": {
        limit: credits.granted,
        used: credits.consumed,
        reserved: credits.reserved,
        remaining: credits.available,
      },
      [PLAN_LIMITS.contactSlots.name]: slots,
      [PLAN_LIMITS.webhookEndpoints.name]: endpoints,
      "email.sends_today": sendsToday,
    },
  };
}
