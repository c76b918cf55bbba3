import { z } from "zod";
import { MAX_ADDRESS_LENGTH } from "../../domain/address.ts";
import { address, deleted, timestamp } from "../fields.ts";
import { idParam } from "../rest/route.ts";

/** Addresses that one call may suppress. */
export const MAX_BATCH = 100;
const MIN_ADDRESS_LENGTH = 3;

export const addressParams = z.strictObject({ email: z.string().min(MIN_ADDRESS_LENGTH).max(MAX_ADDRESS_LENGTH) });
export const suppressionParams = z.strictObject({ suppressionId: idParam });

export const suppressionBody = z.strictObject({
  emails: z.array(address).min(1).max(MAX_BATCH),
  reason: z.literal("MANUAL").default("MANUAL"),
});

export const suppression = z.object({
  object: z.literal("suppression"),
  id: z.string(),
  email: z.string(),
  reason: z.string(),
  created_at: timestamp,
  updated_at: timestamp,
});

export const suppressionBatch = z.object({
  object: z.literal("suppression_batch"),
  added: z.array(z.string()),
  already_suppressed: z.array(z.string()),
});

export const deletedSuppression = deleted("suppression");
