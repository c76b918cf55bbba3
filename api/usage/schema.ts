import { z } from "zod";
import { PLAN_LIMITS } from "../../domain/teams/plans.ts";
import { timestamp } from "../fields.ts";

const limitUse = (description: string, [limit, use]: readonly [number, number]) =>
  z
    .object({
      limit: z.int().meta({ description: "The most that may be used.", examples: [limit] }),
      used: z.int().meta({ description: "The part that is used.", examples: [use] }),
      remaining: z.int().meta({ description: "The part that is left.", examples: [limit - use] }),
    })
    .describe(description);

export const usage = z
  .object({
    object: z.literal("usage"),
    id: z.string().meta({ description: "The period, as year and month.", examples: ["2026-11"] }),
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
          reserved: z.int().meta({ description: "Set aside for sends that have not ended.", examples: [500] }),
          remaining: z.int().meta({ description: "Neither used nor reserved.", examples: [7_000] }),
        }),
        [PLAN_LIMITS.contactSlots.name]: limitUse(
          "Distinct addresses of contacts and subscribers; an address that is both counts once.",
          [50_000, 1_200],
        ).extend({
          limit: z
            .int()
            .nullable()
            .meta({ description: "As many as the plan allows; null for any number.", examples: [50_000] }),
          remaining: z
            .int()
            .nullable()
            .meta({ description: "The part that is left; null without a limit.", examples: [48_800] }),
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
