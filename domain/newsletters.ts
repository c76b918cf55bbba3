import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { List } from "../db/entities/audience.ts";
import { Newsletter } from "../db/entities/send.ts";
import { type EntityManager, kysely, type Tenant, tenantOf } from "../db/orm.ts";
import { touchNewsletters } from "./audience/lists.ts";
import { ApiError, notFound } from "./errors.ts";
import { newId } from "./ids.ts";
import { examineContent, isCrowded } from "./mail/examination.ts";
import { describeProblem } from "./mail/template-problem.ts";
import { changesOf, isDirty, type Patch, type Patched } from "./patch.ts";
import { holdPlace } from "./record-limit.ts";

/** A draft may lack these: they are null until the send's gates require them. */
export interface DraftFields {
  name: string;
  subject: string | null;
  /** Normalised address. */
  fromEmail: string | null;
  fromName: string | null;
  /** HTML with merge tags. */
  body: string | null;
}

/**
 * Makes a draft, in the caller's transaction. It targets no list yet. Its templates were checked, see `checkTemplates`.
 * @param limit newsletters that the tenant may have, sent ones among them
 * @throws {ApiError} `resource_limit_reached`
 */
export async function createDraft(
  em: EntityManager,
  tenant: Tenant,
  fields: DraftFields,
  limit: number,
): Promise<Newsletter> {
  await holdPlace(
    em,
    tenant,
    { table: "newsletters", name: "newsletters", remedy: "delete a draft, or ask for a higher limit" },
    limit,
  );
  const draft = em.create(Newsletter, { id: newId("newsletter"), ...tenant, ...fields });
  await em.flush();
  return draft;
}

/**
 * Changes a draft. The state is checked under the row's lock, so of an edit and a confirm that race one loses. Its
 * templates were checked, see `checkTemplates`.
 * @throws {ApiError} `not_found`; `resource_state_invalid` once it is no draft
 */
export async function updateDraft(
  em: EntityManager,
  newsletterId: string,
  patch: Patch<DraftFields>,
): Promise<Patched<Newsletter>> {
  const draft = await lockDraft(em, newsletterId);
  em.assign(draft, changesOf(patch));
  const isChanged = isDirty(em, draft);
  await em.flush();
  return { record: await em.refreshOrFail(draft), isChanged };
}

/**
 * Deletes a draft.
 * @throws {ApiError} `not_found`; `resource_state_invalid` once it is no draft
 */
export async function deleteDraft(em: EntityManager, newsletterId: string): Promise<void> {
  await em.remove(await lockDraft(em, newsletterId)).flush();
}

/**
 * Targets a list; doing it twice changes nothing.
 * @throws {ApiError} `not_found` for either; `resource_state_invalid` once the newsletter is no draft
 */
export async function attachList(em: EntityManager, newsletterId: string, listId: string): Promise<void> {
  await lockDraft(em, newsletterId);
  if (!(await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_READ }))) throw notFound();
  const { numInsertedOrUpdatedRows } = await kysely(em)
    .insertInto("newsletter_lists")
    .values({ newsletter_id: newsletterId, list_id: listId })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst();
  if (numInsertedOrUpdatedRows) await touchNewsletters(em, tenantOf(em), [newsletterId]);
}

/**
 * Targets a list no more.
 * @throws {ApiError} `not_found` when it was not targeted; `resource_state_invalid` once the newsletter is no draft
 */
export async function detachList(em: EntityManager, newsletterId: string, listId: string): Promise<void> {
  await lockDraft(em, newsletterId);
  const { numDeletedRows } = await kysely(em)
    .deleteFrom("newsletter_lists")
    .where("newsletter_id", "=", newsletterId)
    .where("list_id", "=", listId)
    .executeTakeFirst();
  if (!numDeletedRows) throw notFound();
  await touchNewsletters(em, tenantOf(em), [newsletterId]);
}

/**
 * Restricts the days on which a draft may start to go out.
 * @param days ISO weekdays, 1 Monday to 7 Sunday, in the team's time zone; none means any day
 * @throws {ApiError} `not_found`; `resource_state_invalid` once it is no draft; `validation_failed` for other numbers
 */
export async function setSendDays(
  em: EntityManager,
  newsletterId: string,
  days: readonly number[],
): Promise<Newsletter> {
  if (!days.every((day) => Number.isInteger(day) && day >= 1 && day <= 7)) {
    throw new ApiError("validation_failed", "Send days are numbers from 1 (Monday) to 7 (Sunday).", {
      param: "send_days",
    });
  }
  const draft = await lockDraft(em, newsletterId);
  em.assign(draft, { sendDays: [...new Set(days)].sort() });
  await em.flush();
  return em.refreshOrFail(draft);
}

/**
 * Says whether opens and clicks of a draft's mails are counted, whatever the team's setting is.
 * @param tracking null leaves it to the team's setting at the confirm
 * @throws {ApiError} `not_found`; `resource_state_invalid` once it is no draft
 */
export async function setNewsletterTracking(
  em: EntityManager,
  newsletterId: string,
  tracking: boolean | null,
): Promise<void> {
  em.assign(await lockDraft(em, newsletterId), { tracking });
  await em.flush();
}

async function lockDraft(em: EntityManager, newsletterId: string): Promise<Newsletter> {
  const newsletter = await em.findOne(
    Newsletter,
    { id: newsletterId },
    { lockMode: LockMode.PESSIMISTIC_WRITE, refresh: true },
  );
  if (!newsletter) throw notFound();
  if (newsletter.status !== "DRAFT") {
    throw new ApiError(
      "resource_state_invalid",
      `The newsletter is ${newsletter.status}; only a draft can be changed.`,
    );
  }
  return newsletter;
}

/** Seconds after which a template is worth another try while too many of its team wait: some have been checked by then. */
const TEMPLATES_RETRY_SECONDS = 5;

/**
 * Checks the templates of a draft that is to be made or changed. It may wait for other contents of the same team, so it
 * runs before a transaction takes a connection. An unknown merge tag is no error yet, but one of the preview: a draft may
 * be ahead of the data it is sent with.
 * @throws {ApiError} `validation_failed`, with the place of the problem; `rate_limit_exceeded` while too many others wait
 */
export async function checkTemplates({ teamId }: Tenant, { subject, body }: Patch<DraftFields>): Promise<void> {
  if (!subject && !body) return;
  // A request that is given up leaves its content waiting: without a limit they would fill the memory.
  if (isCrowded(teamId)) {
    throw new ApiError("rate_limit_exceeded", "Too many templates of the team wait to be checked.", {
      retryAfterSeconds: TEMPLATES_RETRY_SECONDS,
    });
  }
  const problems = await examineContent(teamId, { subject: subject ?? "", html: body ?? "" });
  const problem = problems.find(({ kind }) => kind !== "unknown_tag");
  if (!problem) return;
  throw new ApiError("validation_failed", `The template cannot be used: ${describeProblem(problem)}.`, {
    param: problem.field === "html" ? "body" : "subject",
  });
}

/** The ids of the lists that a newsletter targets, oldest list first, as a column of a query of `newsletters`. */
export const targetsOf = (newsletters: string): RawBuilder<string[]> =>
  sql<
    string[]
  >`array(select list_id from newsletter_lists where newsletter_id = ${sql.ref(`${newsletters}.id`)} order by list_id)`;

/** The ids of the lists that a newsletter targets, oldest list first. */
export async function readListIds(em: EntityManager, newsletterId: string): Promise<string[]> {
  const rows = await kysely(em)
    .selectFrom("newsletter_lists")
    .select("list_id")
    .where("newsletter_id", "=", newsletterId)
    .orderBy("list_id")
    .execute();
  return rows.map((row) => row.list_id);
}

/**
 * A newsletter of the tenant.
 * @throws {ApiError} `not_found`
 */
export async function readNewsletter(em: EntityManager, newsletterId: string): Promise<Newsletter> {
  const newsletter = await em.findOne(Newsletter, { id: newsletterId });
  if (!newsletter) throw notFound();
  return newsletter;
}
