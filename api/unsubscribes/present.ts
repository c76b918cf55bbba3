import type { z } from "zod";
import type { Unsubscribe } from "../../db/entities/audience.ts";
import { shownAddress } from "../../domain/address.ts";
import { instant } from "../rest/instant.ts";
import type { unsubscribe } from "./schema.ts";

export const presentUnsubscribe = (row: Unsubscribe): z.input<typeof unsubscribe> => ({
  object: "unsubscribe",
  id: row.id,
  email: shownAddress(row),
  reason: row.reason,
  source: row.source,
  campaign_id: row.campaignId ?? null,
  unsubscribed_at: instant(row.unsubscribedAt),
  created_at: instant(row.unsubscribedAt),
});
