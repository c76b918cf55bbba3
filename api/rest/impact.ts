import { z } from "zod";
import { int } from "../fields.ts";

const count = z.int().meta({ minimum: 0, examples: [1] });

/** How the team stands against a limit. */
const quotaImpact = z
  .object({
    kind: z.enum(["contact_slots", "email_credits"]).meta({ examples: ["email_credits"] }),
    amount: int("Units that the request would use.", 120),
    used: int("Units in use before the request.", 4200),
    limit: int("Units that the team may use.", 10000),
    remaining: int("Units of the limit that are left.", 5800),
  })
  .meta({ id: "QuotaImpact", description: "The use of a limit by the request, and where the team stands." });

/** The effect of a write, as `meta.impact` shows it on a dry run. */
export const impactSchema = z
  .object({
    object: z.literal("impact"),
    would_create: count.describe("Records that the request would create."),
    would_update: count.describe("Records that the request would change."),
    would_delete: count.describe("Records that the request would delete."),
    affected_count: count.describe("Records that the request would touch."),
    affected_ids: z.array(z.string()).meta({ description: "Ids of existing records among them.", examples: [[]] }),
    quota: quotaImpact.nullable().meta({ description: "Null when the request uses no limit.", examples: [null] }),
  })
  .meta({ id: "Impact", description: "The effect that a write would have." });

export type QuotaImpact = z.infer<typeof quotaImpact>;
export type Impact = z.infer<typeof impactSchema>;

/** Makes an impact. A count that is not given is zero; `affected_count` is the sum of the three unless given. */
export function impact(effect: Partial<Omit<Impact, "object">>): Impact {
  const { would_create = 0, would_update = 0, would_delete = 0 } = effect;
  const counts = { would_create, would_update, would_delete };
  const affected_count = would_create + would_update + would_delete;
  return { object: "impact", ...counts, affected_count, affected_ids: [], quota: null, ...effect };
}

/** The impact of a change to one record: none when every given field had its value already. */
export const updateImpact = (id: string, isChanged: boolean): Impact =>
  isChanged ? impact({ would_update: 1, affected_ids: [id] }) : impact({});

export const deleteImpact = (id: string): Impact => impact({ would_delete: 1, affected_ids: [id] });
