import { z } from "zod";
import { PLAN_LIMITS } from "../../domain/teams/plans.ts";
import { int, intOrNull, text, timestamp } from "../fields.ts";

const limitUse = (description: string, [limit, use]: readonly [number, number]) =>
  z
    .object({
      limit: int("The most that may be used.", limit),
      used: int("The part that is used.", use),
      remaining: int("The part that is left.", limit - use),
    })
    .describe(description);

export const usage = z
  .object({
    object: z.literal("usage"),
    id: text("The period, as year and month.", "2026-11"),
    period: z
      .object({
        start: timestamp.meta({ description: "Its first instant.", examples: ["2026-11-01T00:00:00.000Z"] }),
        end: timestamp.meta({
          description: "The first instant of the next period.",
          examples: ["2026-12-01T00:00:00.000Z"],
        }),
      })
      .describe("The current period: a calendar month in UTC."),
    limits: z
      .object({
        [PLAN_LIMITS.requestsPerMinute.name]: limitUse(
          "Requests of the calling key in this minute, with this one. `limit` is the allowance of the plan. The service has a limit for every key too, and the smaller one acts: `remaining` is that of `RateLimit-Remaining`.",
          [600, 12],
        ),
        "email.credits": limitUse(
          "Email credits of the period. `limit` are those that were left when it began and those granted since; `used` were consumed in it.",
          [10_000, 2_500],
        ).extend({
          reserved: int("Set aside for sends that have not ended.", 500),
          remaining: int("Neither used nor reserved.", 7_000),
        }),
        [PLAN_LIMITS.contactSlots.name]: limitUse(
          "Distinct addresses of contacts and subscribers; an address that is both counts once.",
          [50_000, 1_200],
        ).extend({
          limit: intOrNull("As many as the plan allows; null for any number.", 50_000),
          remaining: intOrNull("The part that is left; null without a limit.", 48_800),
        }),
        [PLAN_LIMITS.webhookEndpoints.name]: limitUse("Webhook endpoints.", [20, 2]),
        "email.sends_today": limitUse(
          "Mails of the calling key and the keys it was rotated from, on this day in UTC. An OAuth client may send none.",
          [50_000, 2_500],
        ),
      })
      .describe("Each limit by its name, with its use in the environment of the key."),
  })
  .meta({ id: "Usage", description: "The use of the limits of the team and of the calling key." });
