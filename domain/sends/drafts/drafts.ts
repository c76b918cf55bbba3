import { type EntityClass, type FilterQuery, LockMode, type RequiredEntityData } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { EmailAccount } from "../../../db/entities/account.ts";
import { List } from "../../../db/entities/audience.ts";
import { Campaign, Newsletter, type ResourceType } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant, tenantOf } from "../../../db/orm.ts";
import { touchNewsletters } from "../../audience/lists.ts";
import { lockSegment } from "../../audience/segments/segments.ts";
import { moveToBin } from "../../bin/bin.ts";
import type { Edit } from "../../edits.ts";
import { ApiError, notFound, orNotFound } from "../../errors.ts";
import { newId } from "../../ids.ts";
import { examineContent, isCrowded } from "../../mail/examination.ts";
import {
  type ContentField,
  type ContentProblem,
  describeProblem,
  TemplateError,
  type TemplateProblem,
} from "../../mail/template-problem.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../../patch.ts";
import { footerOf } from "../../teams/brand.ts";
import { holdPlace } from "../../teams/record-limit.ts";
import { keepVersion } from "./versions.ts";

/** Longest line RFC 5322 allows; a subject is one. */
export const MAX_SUBJECT_LENGTH = 998;
export const MAX_BODY_BYTES = 1024 * 1024;

export type Broadcast = Newsletter | Campaign;

export const BROADCASTS: { readonly [Type in ResourceType]: EntityClass<Broadcast> } = {
  newsletter: Newsletter,
  campaign: Campaign,
};

/** The content of a draft. All but the name may be null; the gates of the send require it. */
export interface DraftContent {
  name: string;
  subject: string | null;
  fromName: string | null;
  /** HTML with merge tags. */
  body: string | null;
}

interface OwnFields {
  /** Normalised address in From, of a newsletter. */
  fromEmail?: string | null | undefined;
  isDrip?: boolean;
  preheader?: string | null | undefined;
  blocks?: unknown;
  sendDays?: number[];
  sendAt?: Date | null | undefined;
  sendZone?: string | null | undefined;
  tracking?: boolean | null | undefined;
  segmentId?: string | null;
  accountIds?: string[];
}

/**
 * Makes a draft, whose templates `checkTemplates` has checked.
 * @throws {ApiError} `resource_limit_reached` beyond `limit` records of the kind, sent ones among them
 */
export async function createDraft(
  em: EntityManager,
  tenant: Tenant,
  type: ResourceType,
  fields: DraftContent & OwnFields,
  limit: number,
): Promise<Broadcast> {
  const records = `${type}s` as const;
  const remedy = "delete a draft, or ask for a higher limit";
  await holdPlace(em, tenant, { table: records, name: records, remedy }, limit);
  const data = { id: newId(type), ...tenant, ...fields };
  const draft = em.create(BROADCASTS[type], data as RequiredEntityData<Broadcast>);
  await em.flush();
  return draft;
}

/** @throws {ApiError} `not_found` */
export const readBroadcast = async <T extends Broadcast>(
  em: EntityManager,
  kind: EntityClass<T>,
  id: string,
): Promise<T> => orNotFound(await em.findOne(kind, { id } as FilterQuery<T>)) as T;

export const sequenceRefusal = (): ApiError =>
  new ApiError("resource_state_invalid", "It is a sequence, which is changed and run in the app alone.", {
    isFinal: true,
  });

/**
 * Locks a draft, so that of an edit and a confirm that race one loses.
 * @throws {ApiError} `not_found`; `resource_state_invalid` once it is no draft, and for a sequence
 */
export async function lockDraft<T extends Broadcast>(em: EntityManager, kind: EntityClass<T>, id: string): Promise<T> {
  const lock = { lockMode: LockMode.PESSIMISTIC_WRITE, refresh: true };
  const draft = orNotFound(await em.findOne(kind, { id } as FilterQuery<T>, lock)) as T;
  if ("isDrip" in draft && draft.isDrip) throw sequenceRefusal();
  if (draft.status !== "DRAFT") {
    throw new ApiError("resource_state_invalid", `It is ${draft.status}; only a draft can be changed.`, {
      isFinal: true,
    });
  }
  return draft;
}

/** It waits in the bin. @throws {ApiError} as `lockDraft` */
export async function deleteDraft(em: EntityManager, tenant: Tenant, type: ResourceType, id: string): Promise<void> {
  const { name } = await lockDraft(em, BROADCASTS[type], id);
  await moveToBin(em, tenant, { kind: type, id, name });
}

/**
 * Changes a draft, whose templates `checkTemplates` has checked. What its content replaces is kept as a version.
 * @param options `isLasting` keeps it also where its writer only saves again
 * @throws {ApiError} as `lockDraft`; `not_found` for a segment
 */
export async function updateDraft<T extends Broadcast>(
  em: EntityManager,
  kind: EntityClass<T>,
  id: string,
  patch: Patch<T>,
  edit: Edit | null,
  { isLasting = false } = {},
): Promise<Patched<T>> {
  if (patch.segmentId) await lockSegment(em, patch.segmentId, LockMode.PESSIMISTIC_READ);
  const draft = await lockDraft(em, kind, id);
  const given = changesOf(patch);
  // HTML that was written as such has no blocks.
  const changes = "body" in given ? { blocks: null, preheader: null, ...given } : given;
  await keepVersion(em, draft, changes, edit, isLasting);
  Object.assign(draft, changes);
  const isChanged = isDirty(em, draft);
  await em.flush();
  return { record: (await em.refreshOrFail(draft)) as T, isChanged };
}

/** By then some of the team's templates that wait have been checked. */
const TEMPLATES_RETRY_SECONDS = 5;

/**
 * Checks the templates of a draft that is to be written, before a transaction takes a connection: it may wait for
 * others of the team. An unknown merge tag is an error of the preview only, since a draft may be ahead of its data.
 * @throws {ApiError} `validation_failed`, with the place of the problem; `rate_limit_exceeded` while too many others
 *   wait
 */
export async function checkTemplates(
  { teamId }: Tenant,
  { subject, body }: Patch<Pick<DraftContent, "subject" | "body">>,
): Promise<void> {
  if (!subject && !body) return;
  refuseCrowd(teamId);
  const problems = await examineContent(teamId, { subject: subject ?? "", html: body ?? "" });
  const problem = problems.find(({ kind }) => kind !== "unknown_tag");
  if (!problem) return;
  throw templateRefusal(problem, problem.field);
}

/** The content of a client that hung up still waits: without a limit such contents would fill the memory. */
export function refuseCrowd(teamId: string): void {
  if (!isCrowded(teamId)) return;
  throw new ApiError("rate_limit_exceeded", "Too many templates of the team wait to be checked.", {
    retryAfterSeconds: TEMPLATES_RETRY_SECONDS,
  });
}

/**
 * Reads a mail in the thread of contents.
 * @throws {ApiError} `validation_failed` for a template that cannot be used; `rate_limit_exceeded` while too many others wait
 */
export async function readInThread<Result>(teamId: string, read: () => Promise<Result>): Promise<Result> {
  refuseCrowd(teamId);
  try {
    return await read();
  } catch (error) {
    throw error instanceof TemplateError ? templateRefusal(error.problem, "html") : error;
  }
}

const templateRefusal = (problem: TemplateProblem | ContentProblem, field: ContentField): ApiError =>
  new ApiError("validation_failed", `The template cannot be used: ${describeProblem(problem)}.`, {
    param: field === "html" ? "body" : "subject",
  });

/** Sending accounts of a campaign at most: each has a lane of its own in the send. */
export const MAX_CAMPAIGN_ACCOUNTS = 20;

/**
 * Sets the accounts that mail a campaign, in this order; none takes them all away.
 * @throws {ApiError} `not_found`, which names an account; `resource_state_invalid` unless a draft;
 *   `resource_limit_reached`
 */
export async function attachAccounts(
  em: EntityManager,
  campaignId: string,
  accountIds: readonly string[],
): Promise<Campaign> {
  const ids = [...new Set(accountIds)];
  if (ids.length > MAX_CAMPAIGN_ACCOUNTS) {
    throw new ApiError("resource_limit_reached", `A campaign has at most ${MAX_CAMPAIGN_ACCOUNTS} sending accounts.`);
  }
  const draft = await lockDraft(em, Campaign, campaignId);
  const known = await em.find(EmailAccount, { id: { $in: ids } }, { fields: ["id"] });
  const unknown = ids.find((id) => !known.some((account) => account.id === id));
  if (unknown !== undefined) throw new ApiError("not_found", `The team has no sending account ${unknown}.`);
  draft.accountIds = ids;
  await em.flush();
  return em.refreshOrFail(draft);
}

/** @throws {ApiError} `not_found` for either; `resource_state_invalid` unless a draft */
export const attachSegment = async (em: EntityManager, campaignId: string, segmentId: string): Promise<Campaign> =>
  (await updateDraft(em, Campaign, campaignId, { segmentId }, null)).record;

/** @throws {ApiError} `not_found` for either; `resource_state_invalid` unless a draft */
export async function attachList(em: EntityManager, newsletterId: string, listId: string): Promise<void> {
  await lockDraft(em, Newsletter, newsletterId);
  orNotFound(await em.findOne(List, { id: listId }, { lockMode: LockMode.PESSIMISTIC_READ }));
  const { numInsertedOrUpdatedRows } = await kysely(em)
    .insertInto("newsletter_lists")
    .values({ newsletter_id: newsletterId, list_id: listId })
    .onConflict((conflict) => conflict.doNothing())
    .executeTakeFirst();
  if (numInsertedOrUpdatedRows) await touchNewsletters(em, tenantOf(em), [newsletterId]);
}

/** Lets a new newsletter target lists. @param which condition on lists `l`: such as that its key was made for, unless that was deleted */
export const attachLists = (em: EntityManager, tenant: Tenant, newsletterId: string, which: RawBuilder<unknown>) =>
  // The lock prevents a list's deletion until the newsletter is committed.
  sql`insert into newsletter_lists (newsletter_id, list_id)
    select ${newsletterId}, l.id from lists l where ${which} and ${ofTenant(tenant, "l")} for share`.execute(
    kysely(em),
  );

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

/** SQL: a value of the lists of a newsletter. @param newsletters alias in the query */
export const ofLists = (newsletters: string, column: string): RawBuilder<unknown> =>
  sql`(select ${sql.raw(column)} from newsletter_lists x join lists l on l.id = x.list_id
    where x.newsletter_id = ${sql.ref(`${newsletters}.id`)})`;

/** SQL: whether a newsletter is public once it was sent. @param newsletters alias in the query */
export const isPublicOf = (newsletters: string): RawBuilder<boolean> =>
  sql`coalesce(${sql.ref(`${newsletters}.is_public`)}, ${ofLists(newsletters, "bool_or(l.has_archive)")}, false)`;

/** SQL: what stands below a newsletter `d` of a team `t`. */
export const footerOfNewsletter = () =>
  footerOf(ofLists("d", "count(*) > 0"), sql`d.environment = 'LIVE' and ${isPublicOf("d")}`);

/** SQL: the ids of the lists that a newsletter targets, oldest first. @param newsletters alias in the query */
export const listIdsOf = (newsletters: string): RawBuilder<string[]> =>
  sql<
    string[]
  >`array(select list_id from newsletter_lists where newsletter_id = ${sql.ref(`${newsletters}.id`)} order by list_id)`;
