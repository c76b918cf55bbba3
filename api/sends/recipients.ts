import { z } from "zod";
import { RECIPIENT_STATES } from "../../db/entities/send.ts";
import { JsonText } from "../../db/json.ts";
import type { Scope } from "../../domain/access/scopes.ts";
import { ACTIVITIES } from "../../domain/sends/ledger/activity.ts";
import { pageRecipients } from "../../domain/sends/ledger/recipients.ts";
import type { ResourceType } from "../../domain/sends/resource.ts";
import { stableJson } from "../../lib/json-object.ts";
import { declareFilters } from "../rest/filters.ts";
import { decodeCursor, encodeCursor, paging } from "../rest/list.ts";
import { idParamOf, ok, paragraphs, route } from "../rest/route.ts";
import { recipient } from "./schema.ts";

/** A link narrows those who clicked: beside another activity it would change nothing. */
export const linkOfClicks = [
  ({ activity, link }: { activity?: string | undefined; link?: string | undefined }): boolean =>
    link === undefined || activity === "clicked",
  { path: ["link"], error: "is taken with activity clicked alone" },
] satisfies Parameters<z.ZodObject["refine"]>;

const query = z
  .strictObject({
    ...paging,
    order: paging.order.describe("From the last recipient of the send to the first, or from the first to the last."),
    status: z.enum(RECIPIENT_STATES).optional().describe("Only recipients with this status."),
    activity: z
      .enum(ACTIVITIES)
      .optional()
      .describe("Only recipients of accepted mails who did this, or to whose mail this happened."),
    link: idParamOf("trackedLink", "With `activity` `clicked`: only those who clicked this link.").optional(),
  })
  .refine(...linkOfClicks);
declareFilters(["status", "activity", "link"]);

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
      "`activity` shows the recipients whom the figures count: `opened` and `clicked` by people, `bounced` mails that came back, opt-outs and complaints. `not_opened` are the delivered mails of a tracked send that were not opened. The ids of links come from the list of its links.",
      "With `status` or `activity` a page may hold fewer records than `limit`, even none, and have more after it. When the recipients are kept no longer, the answer is 409 `resource_state_invalid`.",
    ),
    errors: ["resource_state_invalid"],
  })
    .input(z.strictObject({ params, query }))
    .output(z.array(recipient))
    .query(async ({ ctx, input }) => {
      const { limit, order, cursor, status: state, activity, link: linkId } = input.query;
      const { teamId, environment } = ctx.tenant;
      const binding = stableJson([
        ctx.target,
        teamId,
        environment,
        order,
        state ?? null,
        activity ?? null,
        linkId ?? null,
      ]);
      // A place in a ledger is its `seq` alone.
      const after = cursor === undefined ? undefined : decodeCursor(ctx.vault, binding, cursor).sortedAtMs;
      const resource = { type, id: input.params[idParam] ?? "" };
      const page = { state, activity, linkId, order, limit, after };
      const { records, next } = await pageRecipients(ctx.em, ctx.tenant, resource, page);
      const place = next === undefined ? null : { sortedAtMs: next, id: resource.id, syncedMs: null };
      const meta = { has_more: place !== null, next_cursor: place && encodeCursor(ctx.vault, binding, place) };
      return ok(new JsonText<z.input<typeof recipient>[]>(`[${records.map(({ text }) => text).join()}]`), { meta });
    });
}
