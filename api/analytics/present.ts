import type { z } from "zod";
import type { Counts, Overview } from "../../domain/analytics/overview.ts";
import type { analyticsOverview } from "./schema.ts";

/** 0 when there is nothing to divide by. At most 1: opt-outs may be those of mails from before the range. */
const fraction = (part: number, whole: number): number => (whole > 0 ? Math.min(part / whole, 1) : 0);

/** Of mails whose opens and clicks are counted; null where there are none. */
const ofTracked = (part: number, { tracked }: Counts): number | null => (tracked > 0 ? fraction(part, tracked) : null);

const presentCounts = ({ complaints_received: _, ...counts }: Counts) => counts;

export function ratesOf(totals: Counts): z.input<typeof analyticsOverview>["rates"] {
  const { sent, delivered, rejected } = totals;
  return {
    delivered: fraction(delivered, sent),
    bounced: fraction(totals.bounced_hard + totals.bounced_soft, sent),
    rejected: fraction(rejected, sent + rejected),
    complained: fraction(totals.complained, delivered),
    unsubscribed: fraction(totals.unsubscribed, delivered),
    opened: ofTracked(totals.opened_unique, totals),
    clicked: ofTracked(totals.clicked_unique, totals),
  };
}

export function presentOverview({ from, to, totals, days }: Overview): z.input<typeof analyticsOverview> {
  return {
    object: "analytics_overview",
    id: `${from}_${to}`,
    from,
    to,
    totals: presentCounts(totals),
    rates: ratesOf(totals),
    days: days.map(({ date, counts }) => ({ date, ...presentCounts(counts) })),
  };
}
