import { sql } from "kysely";
import { type Campaign, DraftVersion, type Newsletter } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant, tenantOf } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import type { Edit } from "../../edits.ts";
import { orNotFound } from "../../errors.ts";
import { newId } from "../../ids.ts";

/** Of one draft. */
const MAX_VERSIONS = 100;

/** The content of a draft, or of a step of a sequence, which has the sequence's `id`. */
export type KeptContent = Pick<
  Newsletter | Campaign,
  "id" | "subject" | "preheader" | "body" | "blocks" | "updatedAt" | "updatedBy"
> & { stepId?: string };

/** SQL: versions `v` of a draft, or of a step. */
const isOf = (tenant: Tenant, draftId: string, stepId: string | null = null) =>
  sql`${ofTenant(tenant, "v")} and v.draft_id = ${draftId} and v.step_id is not distinct from ${stepId}`;

/** Whether these changes end a text that its writer may miss. One that programs alone have written is theirs to keep. */
function replacesContent(before: KeptContent, changes: Partial<KeptContent>, edit: Edit | null): boolean {
  const isProgramsOwn = before.updatedBy === null && before.blocks === null && edit === null;
  if (before.body === null || isProgramsOwn) return false;
  const endsBlocks = before.blocks !== null && changes.blocks === null;
  return endsBlocks || TEXTS.some((name) => name in changes && changes[name] !== before[name]);
}
const TEXTS = ["subject", "preheader", "body"] as const;

/**
 * Keeps the content of a draft or a step that these changes replace, if they do. It is locked; the caller flushes. A writer who only
 * saves again keeps a version each ten minutes. @param isLasting keeps it also then
 */
export async function keepVersion(
  em: EntityManager,
  content: KeptContent,
  changes: Partial<KeptContent>,
  edit: Edit | null,
  isLasting = false,
): Promise<void> {
  if (!replacesContent(content, changes, edit)) return;
  const changesKind = "blocks" in changes && (changes.blocks === null) !== (content.blocks === null);
  const isNextSave = !isLasting && !changesKind && edit !== null && edit.memberId === content.updatedBy;
  const { id: draftId, stepId = null, updatedAt: writtenAt, updatedBy: writtenBy } = content;
  const { subject, preheader, body, blocks } = content;
  const tenant = tenantOf(em);
  const versions = sql`from draft_versions v where ${isOf(tenant, draftId, stepId)}`;
  const recent = sql`select ${versions} and v.kept_at > now() - interval '10 minutes' limit 1`;
  if (isNextSave && (await recent.execute(kysely(em))).rows.length > 0) return;
  await sql`delete ${versions}
    and v.id in (select v.id ${versions} order by v.id desc offset ${MAX_VERSIONS - 1}::int)`.execute(kysely(em));
  em.create(DraftVersion, {
    ...{ id: newId("draftVersion"), ...tenant, draftId, stepId, subject, preheader, body, blocks },
    ...{ writtenAt, writtenBy },
  });
}

/** A version without its content. */
export interface ListedVersion {
  id: string;
  /** ISO 8601. */
  at: string;
  /** The member's name; null where it was no save of a member in the console. */
  by: string | null;
  subject: string | null;
  has_blocks: boolean;
}

/** The newest first. */
export async function listVersions(
  em: EntityManager,
  tenant: Tenant,
  draftId: string,
  stepId?: string,
): Promise<ListedVersion[]> {
  const { rows } = await sql<ListedVersion>`
    select v.id, ${isoInstant(sql`v.written_at`)} as at, m.name as by, v.subject, v.blocks is not null as has_blocks
    from draft_versions v left join members m on m.id = v.written_by and m.team_id = v.team_id
    where ${isOf(tenant, draftId, stepId)} order by v.id desc`.execute(kysely(em));
  return rows;
}

/** @throws {ApiError} `not_found` */
export const readVersion = async (
  em: EntityManager,
  draftId: string,
  id: string,
  stepId: string | null = null,
): Promise<DraftVersion> => orNotFound(await em.findOne(DraftVersion, { id, draftId, stepId }));
