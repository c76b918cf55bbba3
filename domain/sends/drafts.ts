import { type EntityClass, type FilterQuery, LockMode, type RequiredEntityData } from "@mikro-orm/postgresql";
import { Campaign, Newsletter, type ResourceType } from "../../db/entities/send.ts";
import type { EntityManager, Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import { newId } from "../ids.ts";
import { examineContent, isCrowded } from "../mail/examination.ts";
import { describeProblem } from "../mail/template-problem.ts";
import { changesOf, isDirty, type Patch, type Patched } from "../patch.ts";
import { holdPlace } from "../teams/record-limit.ts";

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
  fromEmail?: string | null;
  isDrip?: boolean;
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
export async function readBroadcast<T extends Broadcast>(
  em: EntityManager,
  kind: EntityClass<T>,
  id: string,
): Promise<T> {
  const record = await em.findOne(kind, { id } as FilterQuery<T>);
  if (!record) throw notFound();
  return record as T;
}

/**
 * Locks a draft, so that of an edit and a confirm that race one loses.
 * @throws {ApiError} `not_found`; `resource_state_invalid` once it is no draft
 */
export async function lockDraft<T extends Broadcast>(em: EntityManager, kind: EntityClass<T>, id: string): Promise<T> {
  const record = await em.findOne(kind, { id } as FilterQuery<T>, {
    lockMode: LockMode.PESSIMISTIC_WRITE,
    refresh: true,
  });
  if (!record) throw notFound();
  const draft = record as T;
  if (draft.status !== "DRAFT") {
    throw new ApiError("resource_state_invalid", `It is ${draft.status}; only a draft can be changed.`, {
      isFinal: true,
    });
  }
  return draft;
}

/** Changes a draft, whose templates `checkTemplates` has checked. @throws {ApiError} as `lockDraft` */
export async function updateDraft<T extends Broadcast>(
  em: EntityManager,
  kind: EntityClass<T>,
  id: string,
  patch: Patch<T>,
): Promise<Patched<T>> {
  const draft = await lockDraft(em, kind, id);
  Object.assign(draft, changesOf(patch));
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
  // The content of a client that hung up still waits: without a limit such contents would fill the memory.
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
