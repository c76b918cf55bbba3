import { z } from "zod";
import { UNSUBSCRIBE_SOURCES } from "../../db/entities/audience.ts";
import { exampleId, MAX_ID_LENGTH } from "../../domain/ids.ts";
import { unsubscribeRecord } from "../../domain/webhooks/records.ts";
import { addressFilter } from "../fields.ts";
import { defineList } from "../rest/list.ts";
import { route, router } from "../rest/route.ts";
import { unsubscribe } from "./schema.ts";

const MAX_SOURCE_LENGTH = 100;

const unsubscribes = defineList({
  table: "unsubscribes",
  sorts: ["unsubscribed_at", "created_at"],
  filters: {
    email: addressFilter,
    source: z
      .string()
      .max(MAX_SOURCE_LENGTH)
      .optional()
      .meta({ description: "Only opt-outs of this source.", examples: ["one_click"] }),
    campaign_id: z
      .string()
      .max(MAX_ID_LENGTH)
      .optional()
      .meta({
        description: "Only opt-outs from a mail of this newsletter or campaign.",
        examples: [exampleId("newsletter")],
      }),
  },
  sortColumns: { created_at: "unsubscribed_at" },
  ranges: { filter: "source", values: UNSUBSCRIBE_SOURCES },
});

const page = route("GET /unsubscribes", {
  scope: "suppressions:read",
  operationId: "listUnsubscribes",
  summary: "List the opt-outs, each with its time and its mail",
  description:
    "Pages through the opt-outs, which are never changed or deleted. There is no `updated_since`: page by `unsubscribed_at` and keep the newest value.",
})
  .input(z.strictObject({ query: unsubscribes.query }))
  .output(z.array(unsubscribe))
  .query(({ ctx, input }) => unsubscribes.pageRecords(ctx, input.query, { record: unsubscribeRecord }));

export const unsubscribesRouter = router({ page });
