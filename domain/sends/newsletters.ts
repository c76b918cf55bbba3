import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { List } from "../../db/entities/audience.ts";
import { Newsletter } from "../../db/entities/send.ts";
import { type EntityManager, kysely, tenantOf } from "../../db/orm.ts";
import { touchNewsletters } from "../audience/lists.ts";
import { notFound } from "../errors.ts";
import { lockDraft } from "./drafts.ts";

/** @throws {ApiError} `not_found` for either; `resource_state_invalid` unless a draft */
export async function attachList(em: EntityManager, newsletterId: string, listId: string): Promise<void> {
  await lockDraft(em, Newsletter, newsletterId);
  if (!(await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_READ }))) throw notFound();
  const { numInsertedOrUpdatedRows } = await kysely(em)
    .insertInto("newsletter_lists")
    .values({ newsletter_id: newsletterId, list_id: listId })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst();
  if (numInsertedOrUpdatedRows) await touchNewsletters(em, tenantOf(em), [newsletterId]);
}

/** @throws {ApiError} `not_found` when it was not targeted; `resource_state_invalid` unless a draft */
export async function detachList(em: EntityManager, newsletterId: string, listId: string): Promise<void> {
  await lockDraft(em, Newsletter, newsletterId);
  const { numDeletedRows } = await kysely(em)
    .deleteFrom("newsletter_lists")
    .where("newsletter_id", "=", newsletterId)
    .where("list_id", "=", listId)
    .executeTakeFirst();
  if (!numDeletedRows) throw notFound();
  await touchNewsletters(em, tenantOf(em), [newsletterId]);
}

/** SQL: the ids of the lists that a newsletter targets, oldest first. @param newsletters alias in the query */
export const listIdsOf = (newsletters: string): RawBuilder<string[]> =>
  sql<
    string[]
  >`array(select list_id from newsletter_lists where newsletter_id = ${sql.ref(`${newsletters}.id`)} order by list_id)`;
