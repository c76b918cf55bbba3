import { sql } from "kysely";
import type { FormField } from "../../db/entities/form.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { lockListForInserts } from "../audience/lists.ts";
import { moveToBin } from "../bin/bin.ts";
import { orNotFound } from "../errors.ts";
import { newId } from "../ids.ts";
import type { Vault } from "../secrets/crypto.ts";
import { referenceOf } from "../secrets/reference.ts";
import { type LinkTeam, LOOK } from "../teams/brand.ts";
import { holdPlace } from "../teams/record-limit.ts";

/** That a team may have in an environment. */
export const MAX_FORMS = 100;

/** The columns that members write, and the texts. */
export interface FormBody {
  name: string;
  list_id: string;
  fields: FormField[];
  consent_text: string;
  /** The question whether opens and clicks may be counted; null where none is asked. */
  tracking_text: string | null;
  thank_you_url: string | null;
  sites: string[];
  is_open: boolean;
}

/** In the caller's transaction. @returns its id @throws {ApiError} `not_found` for the list; `resource_limit_reached` */
export async function createForm(em: EntityManager, vault: Vault, tenant: Tenant, body: FormBody): Promise<string> {
  await holdPlace(em, tenant, { table: "forms", name: "forms" }, MAX_FORMS);
  const id = newId("form");
  const columns = await columnsOf(em, tenant, id, body);
  await kysely(em)
    .insertInto("forms")
    .values({
      id,
      team_id: tenant.teamId,
      environment: tenant.environment,
      reference: referenceOf(vault, "form", id),
      ...columns,
    })
    .execute();
  return id;
}

/** In the caller's transaction. @throws {ApiError} `not_found` for the form or the list */
export async function updateForm(em: EntityManager, tenant: Tenant, id: string, body: FormBody): Promise<void> {
  const form = kysely(em).selectFrom("forms").select("id").where(ofTenant(tenant)).where("id", "=", id);
  orNotFound(await form.forNoKeyUpdate().executeTakeFirst());
  const columns = await columnsOf(em, tenant, id, body);
  await kysely(em).updateTable("forms").set(columns).where(ofTenant(tenant)).where("id", "=", id).execute();
}

/** It waits in the bin; its texts stay. In the caller's transaction. @throws {ApiError} `not_found` */
export async function deleteForm(em: EntityManager, tenant: Tenant, id: string): Promise<void> {
  const form = kysely(em).selectFrom("forms").select("name").where(ofTenant(tenant)).where("id", "=", id);
  const { name } = orNotFound(await form.forUpdate().executeTakeFirst());
  await moveToBin(em, tenant, { kind: "form", id, name });
}

/** Texts are written where they differ from the last ones. */
async function columnsOf(
  em: EntityManager,
  tenant: Tenant,
  formId: string,
  { consent_text, tracking_text, ...columns }: FormBody,
) {
  await lockListForInserts(em, columns.list_id);
  const texts = { consent: consent_text, tracking: tracking_text };
  const last = await kysely(em)
    .selectFrom("form_texts")
    .select(["id", "consent", "tracking"])
    .where(ofTenant(tenant))
    .where("form_id", "=", formId)
    .orderBy("id", "desc")
    .executeTakeFirst();
  if (last?.consent === texts.consent && last.tracking === texts.tracking) return { ...columns, text_id: last.id };
  const id = newId("formText");
  const row = { id, team_id: tenant.teamId, environment: tenant.environment, form_id: formId, ...texts };
  await kysely(em).insertInto("form_texts").values(row).execute();
  return { ...columns, text_id: id };
}

/** A form as its pages show it. */
export interface PublicForm extends LinkTeam, Tenant {
  id: string;
  listId: string;
  listName: string;
  fields: readonly FormField[];
  sites: readonly string[];
  thankYouUrl: string | null;
  isOpen: boolean;
  textId: string;
  consent: string;
  tracking: string | null;
}

/** The reference is the authority. */
export async function findForm(em: EntityManager, id: string): Promise<PublicForm | undefined> {
  const { rows } = await sql<PublicForm>`
    select f.id, f.team_id as "teamId", f.environment, f.list_id as "listId", l.name as "listName", f.fields, f.sites,
      f.thank_you_url as "thankYouUrl", f.is_open as "isOpen", f.text_id as "textId", x.consent, x.tracking, ${LOOK}
    from forms f join lists l on l.id = f.list_id join form_texts x on x.id = f.text_id join teams t on t.id = f.team_id
    where f.id = ${id}`.execute(kysely(em));
  return rows[0];
}

/**
 * Counts one more of a form on the present day, UTC. A form that is gone counts nothing.
 * @param most of the day @returns whether it was counted
 */
export async function countForm(
  em: EntityManager,
  formId: string,
  figure: "shown" | "sent" | "confirmed",
  most = 2_000_000_000,
): Promise<boolean> {
  const counted = sql.ref(figure);
  const { rows } = await sql`
    insert into form_days as d (team_id, environment, form_id, day, ${counted})
    select team_id, environment, id, (now() at time zone 'UTC')::date, 1 from forms where id = ${formId}
    on conflict (team_id, environment, form_id, day) do update set ${counted} = d.${counted} + 1 where d.${counted} < ${most}
    returning d.form_id`.execute(kysely(em));
  return rows.length > 0;
}
