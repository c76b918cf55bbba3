import { z } from "zod";
import { RECIPIENT_STATES } from "../../db/entities/send.ts";
import { JsonText } from "../../db/json.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import { pageRecipients } from "../../domain/sends/ledger/recipients.ts";
import type { ResourceType } from "../../domain/sends/resource.ts";
import { stableJson } from "../../lib/json-object.ts";
import { declareFilters } from "../rest/filters.ts";
import { decodeCursor, encodeCursor, paging } from "../rest/list.ts";
import { idParamOf, ok, paragraphs, route } from "../rest/route.ts";
import { recipient } from "./schema.ts";

const query = z.strictObject({
  ...paging,
  order: paging.order.describe("From the last recipient of the send to the first, or from the first to the last."),
  status: z.enum(RECIPIENT_STATES).optional().describe("Only recipients with this status."),
});
declareFilters(["status"]);

/** A kind of resource, and the scope by which a client reads the people that it is sent to. */
interface ReceivedKind {
  type: ResourceType;
  noun: Capitalize<ResourceType>;
  personScope: Scope;
}

export function recipientsRoute({ type, noun, personScope }: ReceivedKind) {
  const idParam = `${type}Id`;
  const params = z.strictObject({ [idParam]: idParamOf(type, `The id of the ${type}.`) });
  return route(`GET /${type}s/{${idParam}}/recipients`, {
    scope: `${type}s:read`,
    alsoScope: personScope,
    operationId: `list${noun}Recipients`,
    summary: `List the recipients of a ${type} with the outcome of each mail`,
    description: paragraphs(
      `Pages through the recipients of a ${type}, which are fixed at its confirmation: before it there are none. Each is a record as the events \`email.*\` have it. A bounce or a complaint that comes later changes no status here.`,
      "With `status` a page may hold fewer records than `limit`, even none, and have more after it. When the recipients are kept no longer, the answer is 409 `resource_state_invalid`.",
    ),
    errors: ["resource_state_invalid"],
  })
    .input(z.strictObject({ params, query }))
    .output(z.array(recipient))
    .query(async ({ ctx, input }) => {
      const { limit, order, cursor, status: state } = input.query;
      const { teamId, environment } = ctx.tenant;
      const binding = stableJson([ctx.target, teamId, environment, order, state ?? null]);
      // A place in a ledger is its `seq` alone.
      const after = cursor === undefined ? undefined : decodeCursor(ctx.vault, binding, cursor).sortedAtMs;
      const resource = { type, id: input.params[idParam] ?? "" };
      const { records, next } = await pageRecipients(ctx.em, ctx.tenant, resource, { state, order, limit, after });
      const place = next === undefined ? null : { sortedAtMs: next, id: resource.id, syncedMs: null };
      const meta = { has_more: place !== null, next_cursor: place && encodeCursor(ctx.vault, binding, place) };
      return ok(new JsonText<z.input<typeof recipient>[]>(`[${records.map(({ text }) => text).join()}]`), { meta });
    });
}
