import { defineEntity, p } from "@mikro-orm/postgresql";
import { subscription } from "./audience.ts";
import { code, expiring, holding, instant, tenancy, text } from "./shared.ts";

export const BIN_DAYS = 30;

/** A sequence is a campaign to the API, and a kind of its own here. */
export type BinnedKind = "newsletter" | "campaign" | "sequence" | "template" | "list" | "segment" | "form";

/** Records that were deleted and can be restored. */
export const BinSchema = defineEntity({
  name: "bin",
  indexes: [{ properties: ["teamId", "environment", "kind", "deletedAt"] }, { properties: ["deletedAt"] }],
  properties: {
    /** Of the record, which keeps it. */
    id: code().primary(),
    ...tenancy,
    kind: code().$type<BinnedKind>(),
    name: text("team"),
    /** The member who deleted it in the console; null for any other deletion. */
    deletedBy: code().nullable(),
    deletedAt: expiring(`${BIN_DAYS} days`, instant().defaultRaw("now()")),
  },
});

/** The rows of such a record, moved here from their tables. */
export const BinRowSchema = defineEntity({
  name: "bin_rows",
  indexes: [{ properties: ["recordId"] }],
  properties: {
    id: code().primary(),
    ...tenancy,
    recordId: code(),
    /** The table that it comes from. */
    source: code(),
    data: holding("team", p.json<Record<string, unknown>>()),
  },
});

const { addressVersion: _, ...moved } = subscription;

/** Subscriptions of lists in the bin. Opt-outs, deletions of subscribers and erasures change them as those of other lists. */
export const BinSubscriptionSchema = defineEntity({
  name: "bin_subscriptions",
  indexes: [{ properties: ["subscriberId"] }],
  properties: {
    ...moved,
    /** By a trigger: the subscriber has another address since. */
    hasMoved: p.boolean().default(false),
  },
});
