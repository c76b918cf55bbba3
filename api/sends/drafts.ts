import type { EntityClass } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { z } from "zod";
import type { Env } from "../../config/env.ts";
import { BIN_DAYS } from "../../db/entities/bin.ts";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import type { Patch } from "../../domain/patch.ts";
import {
  attachLists,
  type Broadcast,
  checkTemplates,
  createDraft,
  deleteDraft,
  updateDraft,
} from "../../domain/sends/drafts/drafts.ts";
import type { ResourceType } from "../../domain/sends/resource.ts";
import { deleted } from "../fields.ts";
import type { RouteMeta } from "../rest/definition.ts";
import { defineList, MAX_PAGE_BYTES } from "../rest/list.ts";
import { readRecord } from "../rest/record.ts";
import { deleteImpact, idParamOf, impact, ok, paragraphs, route, router, updateImpact } from "../rest/route.ts";
import { sizeText } from "../units.ts";

interface WrittenContent {
  name: string;
  subject: string | null;
  from_name: string | null;
  body: string | null;
  from_email?: string | null;
}

/** A schema, and SQL of a record that fits it; see `readRecord`. */
interface ShownRecord<Schema extends z.ZodType> {
  schema: Schema;
  record: (row: string) => RawBuilder<z.input<Schema>>;
}

/** A kind of resource that is sent, and how it is shown. */
export interface ShownKind<T extends Broadcast, Shown extends z.ZodType> {
  /** Its paths, its scopes and the ids in its paths are named after it. */
  type: ResourceType;
  /** Its operations are named after it: `Newsletter`. */
  noun: Capitalize<ResourceType>;
  entity: EntityClass<T>;
  shown: ShownRecord<Shown>;
}

/** A kind of resource that is drafted, and sent later. */
interface DraftedKind<T extends Broadcast, Shown extends z.ZodType, Whole extends z.ZodType>
  extends ShownKind<T, Shown> {
  /** Records that a team may have in an environment. */
  limit(env: Env): number;
  statuses: readonly BroadcastStatus[];
  /** A sentence about the parts that only the app sets. */
  setInApp: string;
  elsewhere?: RouteMeta["elsewhere"];
  body: z.ZodType<WrittenContent>;
  patch: z.ZodType<Patch<WrittenContent>>;
  whole: ShownRecord<Whole>;
}

const fieldsOf = <Content extends Patch<WrittenContent>>({ from_name, from_email, ...rest }: Content) => ({
  ...rest,
  fromName: from_name,
  ...(from_email === undefined ? {} : { fromEmail: from_email }),
});

export function draftRouter<T extends Broadcast, Shown extends z.ZodType, Whole extends z.ZodType>(
  kind: DraftedKind<T, Shown, Whole>,
) {
  const { type, noun, entity, shown, elsewhere = {} } = kind;
  const idParam = `${type}Id`;
  const table = `${type}s` as const;
  const path = `/${table}` as const;
  const onePath = `${path}/{${idParam}}` as const;
  const scopes = { read: `${type}s:read`, write: `${type}s:write` } as const;
  const params = z.strictObject({ [idParam]: idParamOf(type, `The id of the ${type}.`) });
  const idOf = (input: { params: Record<string, string> }) => input.params[idParam] ?? "";

  const list = defineList({
    table,
    sorts: ["updated_at", "created_at"],
    filters: { status: z.enum(kind.statuses).optional().describe(`Only ${table} with this status.`) },
    largeColumn: "body",
  });

  const page = route(`GET ${path}`, {
    scope: scopes.read,
    isHeavy: true,
    operationId: `list${noun}s`,
    summary: `List the ${table}`,
    description: `Pages through the ${table} of the team, each with its body. A page ends before its records exceed ${sizeText(MAX_PAGE_BYTES)}, so it may hold fewer ${table} than \`limit\` and have more after it.`,
  })
    .input(z.strictObject({ query: list.query }))
    .output(z.array(shown.schema))
    .query(({ ctx, input }) => list.pageRecords(ctx, input.query, { record: shown.record }));

  const create = route(`POST ${path}`, {
    status: 201,
    scope: scopes.write,
    operationId: `create${noun}`,
    summary: `Draft a ${type}`,
    description: paragraphs(
      `Creates a ${type}, always as a \`DRAFT\`. A draft may be incomplete: its send-preview is refused until it is complete. ${kind.setInApp}`,
      `\`subject\` and \`body\` are Liquid templates, which are checked here. A team has a limit of ${type}s, sent ones among them: one more is 409 \`resource_limit_reached\`. While too many templates of the team wait to be checked, the answer is 429 \`rate_limit_exceeded\`.`,
    ),
    errors: ["rate_limit_exceeded", "resource_limit_reached"],
    elsewhere,
  })
    .input(z.strictObject({ body: kind.body }))
    .output(shown.schema)
    .before(({ ctx, input }) => checkTemplates(ctx.tenant, input.body))
    .mutation(async ({ ctx, input }) => {
      const fields = { ...fieldsOf(input.body), fromName: input.body.from_name };
      const draft = await createDraft(ctx.em, ctx.tenant, type, fields, kind.limit(ctx.env));
      const { caller } = ctx.access;
      if (type === "newsletter" && caller.kind === "api_key" && caller.forListId !== null)
        await attachLists(ctx.em, ctx.tenant, draft.id, sql`l.id = ${caller.forListId}`);
      return ok(await readRecord(ctx.em, table, shown.record, draft.id), { impact: impact({ would_create: 1 }) });
    });

  const retrieve = route(`GET ${onePath}`, {
    scope: scopes.read,
    isHeavy: true,
    operationId: `retrieve${noun}`,
    summary: `Retrieve a ${type} with the states of its recipients`,
    description: `Answers one ${type}. From its confirmation on, \`recipients\` counts its recipients in each state; the counts add up to \`total\`.`,
  })
    .input(z.strictObject({ params }))
    .output(kind.whole.schema)
    .query(async ({ ctx, input }) => ok(await readRecord(ctx.em, table, kind.whole.record, idOf(input))));

  const update = route(`PATCH ${onePath}`, {
    scope: scopes.write,
    audit: "daily",
    operationId: `update${noun}`,
    summary: "Change a draft",
    description:
      "Changes the fields that the body holds and leaves the others as they are. Only a `DRAFT` can be changed; in another status the answer is 409 `resource_state_invalid`. A change makes the tokens of earlier previews void.",
    errors: ["rate_limit_exceeded", "resource_state_invalid"],
    elsewhere,
  })
    .input(z.strictObject({ params, body: kind.patch }))
    .output(shown.schema)
    .before(({ ctx, input }) => checkTemplates(ctx.tenant, input.body))
    .mutation(async ({ ctx, input }) => {
      const patch = fieldsOf(input.body);
      const id = idOf(input);
      const { isChanged } = await updateDraft(ctx.em, entity, id, patch as Patch<T>, ctx.edit);
      return ok(await readRecord(ctx.em, table, shown.record, id), { impact: updateImpact(id, isChanged) });
    });

  const remove = route(`DELETE ${onePath}`, {
    scope: scopes.write,
    operationId: `delete${noun}`,
    summary: "Delete a draft",
    description: `Deletes a draft. In the console, a member can restore it for ${BIN_DAYS} days. A ${type} that is no \`DRAFT\` any more stays: 409 \`resource_state_invalid\`.`,
    errors: ["resource_state_invalid"],
  })
    .input(z.strictObject({ params }))
    .output(deleted(type, type, `Deleted${noun}`))
    .mutation(async ({ ctx, input }) => {
      const id = idOf(input);
      await deleteDraft(ctx.em, ctx.tenant, type, id);
      return ok({ object: type, id, deleted: true }, { impact: deleteImpact(id) });
    });

  return router({ page, create, retrieve, update, remove });
}
