import { z } from "zod";
import { JsonText } from "../../db/json.ts";
import { pageLinks } from "../../domain/analytics/links.ts";
import type { ResourceType } from "../../domain/sends/resource.ts";
import { stableJson } from "../../lib/json-object.ts";
import { idOf, text, timestampOrNull } from "../fields.ts";
import { decodeCursor, encodeCursor, paging } from "../rest/list.ts";
import { recordOf } from "../rest/record.ts";
import { idParamOf, ok, paragraphs, route } from "../rest/route.ts";

const count = (description: string, value: number) => z.int().meta({ description, minimum: 0, examples: [value] });

const link = z
  .object({
    object: z.literal("link"),
    id: idOf("trackedLink"),
    url: text("The page that it leads to.", "https://shop.example.com/sale"),
    clicks: count("Clicks by people.", 90),
    clickers: count("Mails in which a person clicked it.", 60),
    clicks_unknown: count("Clicks that a program may have made, which `clicks` leaves out.", 7),
    clicks_machine: count("Clicks by programs, which `clicks` leaves out.", 35),
    first_at: timestampOrNull("When a person first clicked it."),
    last_at: timestampOrNull("When a person last clicked it."),
  })
  .meta({ id: "TrackedLink", description: "A link of a newsletter or campaign with its clicks." });

const query = z.strictObject({
  ...paging,
  order: paging.order.describe("By `clickers`: most first, or fewest first."),
});

export function linksRoute({ type, noun }: { type: ResourceType; noun: Capitalize<ResourceType> }) {
  const idParam = `${type}Id`;
  const params = z.strictObject({ [idParam]: idParamOf(type, `The id of the ${type}.`) });
  return route(`GET /${type}s/{${idParam}}/links`, {
    scope: `${type}s:read`,
    alsoScope: "analytics:read",
    operationId: `list${noun}Links`,
    summary: `List the links of a ${type} with their clicks`,
    description: paragraphs(
      `Pages through the links of a ${type} that were clicked in mails with tracking. Links of a mail with the same URL are one record. The sums of \`clicks\`, \`clicks_unknown\` and \`clicks_machine\` over all links are \`clicked\`, \`clicked_unknown\` and \`clicked_machine\` of its analytics.`,
      "A click counts as in the analytics, some seconds after it. While people click, a link may move from one page to another.",
    ),
  })
    .input(z.strictObject({ params, query }))
    .output(z.array(link))
    .query(async ({ ctx, input }) => {
      const { limit, order, cursor } = input.query;
      const { teamId, environment } = ctx.tenant;
      const binding = stableJson([ctx.target, teamId, environment, order]);
      const place = cursor === undefined ? undefined : decodeCursor(ctx.vault, binding, cursor);
      const after = place && { clickers: place.sortedAtMs, id: place.id };
      const resource = { type, id: input.params[idParam] ?? "" };
      const page = { record: recordOf(link), order, limit, after };
      const { records, next } = await pageLinks(ctx.em, ctx.tenant, resource, page);
      const end = next && encodeCursor(ctx.vault, binding, { sortedAtMs: next.clickers, id: next.id, syncedMs: null });
      const meta = { has_more: end !== undefined, next_cursor: end ?? null };
      return ok(new JsonText<z.input<typeof link>[]>(`[${records.map(({ text }) => text).join()}]`), { meta });
    });
}
