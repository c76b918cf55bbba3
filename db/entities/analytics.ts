import { defineEntity, p } from "@mikro-orm/postgresql";
import { code, tenantKey } from "./shared.ts";

export const FIGURES = [
  // Of the day on which the mails were accepted.
  "sent",
  "tracked",
  "bounced_hard",
  "bounced_soft",
  "complained",
  "opened",
  "opened_unique",
  "clicked",
  "clicked_unique",
  "opened_unknown",
  "opened_machine",
  "clicked_unknown",
  "clicked_machine",
  // Of the day on which they happened.
  "rejected",
  "suppressed",
  "unknown",
  "unsubscribed",
  "complaints_received",
] as const;
export type Figure = (typeof FIGURES)[number];

const count = () => p.integer().default(0);

/** Sums of `analytics_changes`, which the maintenance pool adds here. They outlive the facts that they count. */
export const AnalyticsDaySchema = defineEntity({
  name: "analytics_days",
  properties: {
    ...tenantKey,
    /** The id of a newsletter or campaign; empty for all of the tenant. */
    resourceId: code().primary(),
    day: p.date().primary(),
    ...(Object.fromEntries(FIGURES.map((figure) => [figure, count()])) as Record<Figure, ReturnType<typeof count>>),
  },
});

/** A change that is not in `analytics_days` yet, appended by triggers: no transaction waits for a row that counts. */
export const AnalyticsChangeSchema = defineEntity({
  name: "analytics_changes",
  properties: {
    ...tenantKey,
    day: p.date().primary(),
    /** Makes the key unique, within the index that readers need. */
    seq: p.bigint().primary().autoincrement(),
    resourceId: code(),
    /** Of a wave of a sequence, whose versions of steps have sums of their own. */
    stepVersionId: code().nullable(),
    figure: code().$type<Figure>(),
    count: p.integer(),
  },
});
