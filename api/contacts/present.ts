import type { z } from "zod";
import type { UpsertOutcome } from "../../domain/audience/contact-bulk.ts";
import type { ApiError } from "../../domain/errors.ts";
import type { CheckedItem } from "./bulk.ts";
import type { contactBatch } from "./schema.ts";

const failed = ({ code, message, param }: ApiError) => ({
  status: "failed" as const,
  id: null,
  error: { code, message, param: param ?? null },
});

/** @param outcomes of the items that could be used, in their order */
export function presentBatch(
  items: readonly CheckedItem[],
  outcomes: readonly UpsertOutcome[],
): z.input<typeof contactBatch> {
  const settled = outcomes.values();
  const results = items.map((item, index) => {
    if ("error" in item) return { index, email: item.email, ...failed(item.error) };
    const { email } = item.contact;
    const { value: outcome } = settled.next();
    if (!outcome) throw new Error("an item has no outcome");
    if (!("error" in outcome)) return { index, email, ...outcome, error: null };
    // The answer is remembered: it must not hold an erased address.
    return { index, email: outcome.error.code === "person_erased" ? null : email, ...failed(outcome.error) };
  });
  return { object: "contact_batch", results };
}
