import { z } from "zod";
import { MAX_DAYS } from "../../domain/analytics/overview.ts";
import { exampleId, MAX_ID_LENGTH } from "../../domain/ids.ts";
import { itIs } from "../rest/messages.ts";

const FIRST_DATE = "1970-01-01";

const example = (date: string) => ({ examples: [date] });

const shownDate = (description: string, date: string) => z.string().meta({ description, ...example(date) });

/** A calendar date; none of a mail is older than 1970. */
const date = z.iso
  .date({ error: ({ input }) => `must be a date, such as 2026-11-21${itIs(input)}`, abort: true })
  .refine((text) => text >= FIRST_DATE, { error: ({ input }) => `must be ${FIRST_DATE} or later${itIs(input)}` })
  .optional();

export const overviewQuery = z.strictObject({
  from: date.meta({
    description: `The first day, in UTC. A range holds at most ${MAX_DAYS} days.`,
    ...example("2026-11-01"),
  }),
  to: date.meta({ description: "The last day, in UTC; today unless given.", ...example("2026-11-21") }),
  resource_id: z
    .string()
    .min(1)
    .max(MAX_ID_LENGTH)
    .optional()
    .meta({
      description: "Only figures of this newsletter or campaign.",
      examples: [exampleId("newsletter")],
    }),
});

const count = (description: string, value: number) => z.int().meta({ description, examples: [value] });

const counts = {
  sent: count("Mails that a server accepted.", 1_000),
  tracked: count("Of `sent`, mails whose opens and clicks are counted.", 640),
  delivered: count("`sent` less both kinds of bounces.", 985),
  rejected: count("Mails that a server refused.", 12),
  bounced_hard: count("Accepted mails that came back because the address does not exist.", 10),
  bounced_soft: count("Accepted mails that came back for another reason, such as a full mailbox.", 5),
  complained: count("Accepted mails that their recipients called spam.", 1),
  unsubscribed: count("Opt-outs.", 4),
  suppressed: count(
    "Recipients left out while the mails went out, because they had become suppressed or opted out since the confirmation.",
    2,
  ),
  unknown: count("Mails whose outcome is not known, because a connection or a worker was lost.", 0),
  opened: count("Opens that were tracked, without those of programs.", 450),
  opened_unique: count("Mails with at least one such open.", 320),
  clicked: count("Clicks on links by people.", 90),
  clicked_unique: count("Mails with at least one click by a person.", 60),
  opened_unknown: count("Of `opened`, those that a program may have made.", 12),
  opened_machine: count("Opens by programs, which `opened` leaves out.", 140),
  clicked_unknown: count("Clicks that a program may have made, which `clicked` leaves out.", 7),
  clicked_machine: count("Clicks by programs, which `clicked` leaves out.", 35),
};

const rate = (description: string, value: number) =>
  z
    .number()
    .min(0)
    .max(1)
    .meta({ description, examples: [value] });

const rates = z
  .object({
    delivered: rate("`delivered` over `sent`.", 0.985),
    bounced: rate("Both kinds of bounces over `sent`.", 0.015),
    rejected: rate("`rejected` over `sent` and `rejected`.", 0.0119),
    complained: rate("`complained` over `delivered`.", 0.001),
    unsubscribed: rate("`unsubscribed` over `delivered`.", 0.0041),
    opened: rate("`opened_unique` over `tracked`; null where no mail is tracked.", 0.5).nullable(),
    clicked: rate("`clicked_unique` over `tracked`; null where no mail is tracked.", 0.0938).nullable(),
  })
  .describe("Fractions of the totals, from 0 to 1. Without a divisor `opened` and `clicked` are null, the others 0.");

export const analyticsOverview = z
  .object({
    object: z.literal("analytics_overview"),
    id: z.string().meta({ description: "The first and the last day.", ...example("2026-11-01_2026-11-21") }),
    from: shownDate("The first day, in UTC.", "2026-11-01"),
    to: shownDate("The last day, in UTC.", "2026-11-21"),
    totals: z.object(counts).describe("The sums over all days."),
    rates,
    days: z
      .array(z.object({ date: shownDate("The day, in UTC.", "2026-11-01"), ...counts }))
      .describe("Every day of the range, oldest first; one without mails has zeros."),
  })
  .meta({ id: "AnalyticsOverview", description: "The outcomes of the mails of a range of days." });
