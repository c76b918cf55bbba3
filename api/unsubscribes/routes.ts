import { z } from "zod";
import { UNSUBSCRIBE_SOURCES, Unsubscribe } from "../../db/entities/audience.ts";
import { kysely } from "../../db/orm.ts";
import { lookupAddress, MAX_ADDRESS_LENGTH } from "../../domain/address.ts";
import { MAX_ID_LENGTH } from "../../domain/ids.ts";
import { defineList } from "../rest/list.ts";
import { route, router } from "../rest/route.ts";
import { presentUnsubscribe } from "./present.ts";
import { unsubscribe } from "./schema.ts";

const MAX_SOURCE_LENGTH = 100;

const unsubscribes = defineList({
  table: "unsubscribes",
  sorts: ["unsubscribed_at", "created_at"],
  filters: {
    email: z.string().max(MAX_ADDRESS_LENGTH).optional(),
    source: z.string().max(MAX_SOURCE_LENGTH).optional(),
    campaign_id: z.string().max(MAX_ID_LENGTH).optional(),
  },
  sortColumns: { created_at: "unsubscribed_at" },
  ranges: { filter: "source", values: UNSUBSCRIBE_SOURCES },
});

const page = route({
  method: "GET",
  path: "/unsubscribes",
  scope: "suppressions:read",
  summary: "List the opt-outs, each with its time and its mail",
})
  .input(z.strictObject({ query: unsubscribes.query }))
  .output(z.array(unsubscribe))
  .query(({ ctx, input }) => {
    let rows = kysely(ctx.em).selectFrom("unsubscribes").selectAll("unsubscribes");
    const { email, source, campaign_id: campaignId } = input.query;
    if (email !== undefined) rows = rows.where("email", "=", lookupAddress(email));
    if (source !== undefined) rows = rows.where("source", "=", source);
    if (campaignId !== undefined) rows = rows.where("campaign_id", "=", campaignId);
    return unsubscribes.pageEntities(ctx, input.query, rows, Unsubscribe, presentUnsubscribe);
  });

export const unsubscribesRouter = router({ page });
