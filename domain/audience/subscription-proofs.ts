import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";

/** How and when a person agreed to the mails of a list, as far as it is known. Times are ISO 8601. */
export interface SubscriptionProof {
  list_id: string;
  confirmed_at: string | null;
  /** The last mail that asked them to confirm. */
  confirmation_sent_at: string | null;
  /** The last sign-up at a form, and the text that they were shown there. */
  signed_up_at_a_form_at: string | null;
  words_of_the_form: string | null;
}

/** SQL: the name of a list, also of one in the bin, as `list`. @param id a column */
export const listNameOf = (tenant: Tenant, id: string): RawBuilder<unknown> => sql`coalesce(
    (select l.name from lists l where ${ofTenant(tenant, "l")} and l.id = ${sql.ref(id)}),
    (select b.name from bin b where ${ofTenant(tenant, "b")} and b.id = ${sql.ref(id)})) as list`;

/** SQL: the subscriptions of a person, or those to lists in the bin, as their export has them. @param email normalised */
export const subscriptionProofs = (
  tenant: Tenant,
  email: string,
  table: "subscriptions" | "bin_subscriptions",
): RawBuilder<SubscriptionProof> => sql`
    select s.list_id, ${listNameOf(tenant, "s.list_id")},
      s.status, s.created_at, s.confirmed_at, s.unsubscribed_at, s.signed_up_again_at,
      s.confirmation_sent_at, s.form_at as signed_up_at_a_form_at, f.consent as words_of_the_form,
      f.tracking as question_about_tracking, s.form_tracking as answer_about_tracking, s.updated_at
    from subscribers p join ${sql.table(table)} s on s.subscriber_id = p.id and ${ofTenant(tenant, "s")}
    left join form_texts f on f.id = s.form_text_id and ${ofTenant(tenant, "f")}
    where ${ofTenant(tenant, "p")} and p.email = ${email}`;

/** @param email normalised */
export async function readSubscriptionProofs(
  em: EntityManager,
  tenant: Tenant,
  email: string,
): Promise<SubscriptionProof[]> {
  const { rows } = await sql<{ proof: SubscriptionProof }>`
    select json_build_object('list_id', p.list_id, 'confirmed_at', p.confirmed_at, 'confirmation_sent_at', p.confirmation_sent_at,
      'signed_up_at_a_form_at', p.signed_up_at_a_form_at, 'words_of_the_form', p.words_of_the_form) as proof from (${subscriptionProofs(tenant, email, "subscriptions")}) p`.execute(
    kysely(em),
  );
  return rows.map(({ proof }) => proof);
}
