import { z } from "zod";
import { MAX_ADDRESS_LENGTH } from "../../domain/address.ts";
import { address, deleted, idOf, shownAddress, text, timestamps } from "../fields.ts";
import { idParamOf } from "../rest/route.ts";

export const MAX_BATCH = 100;
const MIN_ADDRESS_LENGTH = 3;

export const addressParams = z.strictObject({
  email: z
    .string()
    .min(MIN_ADDRESS_LENGTH)
    .max(MAX_ADDRESS_LENGTH)
    .meta({ description: "The address; in a URL percent-encoded.", examples: ["ada@example.com"] }),
});
export const suppressionParams = z.strictObject({
  suppressionId: idParamOf("suppression", "The id of the suppression."),
});

export const suppressionBody = z.strictObject({
  emails: z.array(address).min(1).max(MAX_BATCH).describe("Addresses; they are trimmed and lower-cased."),
  reason: z.literal("MANUAL").default("MANUAL").describe("The other reasons are written by the service."),
});

export const suppression = z
  .object({
    object: z.literal("suppression"),
    id: idOf("suppression"),
    email: shownAddress,
    reason: text(
      "Why: `MANUAL`, `UNSUBSCRIBED`, `bounce:hard`, `bounce:soft` or `bounce:complaint`. Others may follow.",
      "MANUAL",
    ),
    ...timestamps,
  })
  .meta({ id: "Suppression", description: "An address that the team does not mail." });

export const suppressionBatch = z
  .object({
    object: z.literal("suppression_batch"),
    added: z.array(shownAddress).describe("Addresses that were put on the do-not-mail list."),
    already_suppressed: z
      .array(z.string())
      .meta({ description: "Addresses that were on it already, and stay as they are.", examples: [[]] }),
  })
  .meta({ id: "SuppressionBatch", description: "The outcome of suppressing addresses." });

export const deletedSuppression = deleted("suppression", "suppression", "DeletedSuppression");
