import type { z } from "zod";
import type { SuppressionOutcome } from "../../domain/audience/suppressions.ts";
import type { suppressionBatch } from "./schema.ts";

/** An outcome without erased addresses. */
export type RememberedOutcome = Pick<SuppressionOutcome, "added" | "alreadySuppressed">;

export const presentBatch = (outcome: RememberedOutcome): z.input<typeof suppressionBatch> => ({
  object: "suppression_batch",
  added: outcome.added,
  already_suppressed: outcome.alreadySuppressed,
});
