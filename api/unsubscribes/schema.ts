import { z } from "zod";
import { timestamp } from "../fields.ts";

export const unsubscribe = z.object({
  object: z.literal("unsubscribe"),
  id: z.string(),
  email: z.string(),
  reason: z.string(),
  source: z.string(),
  campaign_id: z.string().nullable(),
  unsubscribed_at: timestamp,
  created_at: timestamp,
});
