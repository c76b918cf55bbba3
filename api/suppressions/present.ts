import type { z } from "zod";
import type { Suppression } from "../../db/entities/audience.ts";
import { shownAddress } from "../../domain/address.ts";
import type { SuppressionOutcome } from "../../domain/audience/suppressions.ts";
import { instant } from "../rest/instant.ts";
import type { suppression, suppressionBatch } from "./schema.ts";

export const presentSuppression = (row: Suppression): z.input<typeof suppression> => ({
  object: "suppression",
  id: row.id,
  email: shownAddress(row),
  reason: row.reason,
  created_at: instant(row.createdAt),
  updated_at: instant(row.updatedAt),
});

/** An outcome without erased addresses. */
export type RememberedOutcome = Pick<SuppressionOutcome, "added" | "alreadySuppressed">;

export const presentBatch = (outcome: RememberedOutcome): z.input<typeof suppressionBatch> => ({
  object: "suppression_batch",
  added: outcome.added,
  already_suppressed: outcome.alreadySuppressed,
});
