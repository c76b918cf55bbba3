import { sql } from "kysely";
import { z } from "zod";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { defineList } from "../rest/list.ts";
import { readRowRecord, recordOf } from "../rest/record.ts";
import { ok, route, router } from "../rest/route.ts";
import { form, formParams } from "./schema.ts";

const forms = defineList({ table: "forms", sorts: ["updated_at", "created_at"] });

const rowsOf = (em: EntityManager, { publicUrl }: { publicUrl: string }) =>
  kysely(em)
    .selectFrom("forms")
    .selectAll()
    .select(sql<string>`${publicUrl}::text || '/f/' || forms.reference`.as("url"));

const formRecord = recordOf(form, (row) => {
  const textOf = (column: "consent" | "tracking") =>
    sql`(select x.${sql.ref(column)} from form_texts x where x.id = ${sql.ref(`${row}.text_id`)})`;
  const sumOf = (column: "shown" | "sent" | "confirmed") =>
    sql`(select coalesce(sum(d.${sql.ref(column)}), 0)::int from form_days d
      where d.team_id = ${sql.ref(`${row}.team_id`)} and d.environment = ${sql.ref(`${row}.environment`)}
        and d.form_id = ${sql.ref(`${row}.id`)})`;
  return {
    ...{ consent_text: textOf("consent"), tracking_text: textOf("tracking") },
    ...{ shown: sumOf("shown"), sent: sumOf("sent"), confirmed: sumOf("confirmed") },
  };
});

/** @throws {ApiError} `not_found` */
export const readForm = (em: EntityManager, tenant: Tenant, publicUrl: string, id: string) =>
  readRowRecord(em, rowsOf(em, { publicUrl }).where(ofTenant(tenant, "forms")).where("forms.id", "=", id), formRecord);

const page = route("GET /forms", {
  scope: "lists:read",
  operationId: "listForms",
  summary: "List the sign-up forms",
  description: "Pages through the sign-up forms of the team. They are made in the app.",
})
  .input(z.strictObject({ query: forms.query }))
  .output(z.array(form))
  .query(({ ctx, input }) =>
    forms.pageRecords(ctx, input.query, {
      values: { publicUrl: ctx.env.PUBLIC_URL },
      rows: rowsOf,
      record: formRecord,
    }),
  );

const retrieve = route("GET /forms/{formId}", {
  scope: "lists:read",
  operationId: "retrieveForm",
  summary: "Retrieve a sign-up form",
  description: "Answers one sign-up form: its texts, where it may be used, and how often it was.",
})
  .input(z.strictObject({ params: formParams }))
  .output(form)
  .query(async ({ ctx, input }) => ok(await readForm(ctx.em, ctx.tenant, ctx.env.PUBLIC_URL, input.params.formId)));

export const formsRouter = router({ page, retrieve });
