import { sql } from "kysely";
import { type Campaign, DraftVersion, type Newsletter } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant, tenantOf } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { orNotFound } from "../../errors.ts";
import { newId } from "../../ids.ts";

/** Of one draft. */
const MAX_VERSIONS = 100;
const SPAN = sql`'10 minutes'::interval`;

/** The content of a draft, or of a step of a sequence, which has the sequence's `id`. */
export type KeptContent = Pick<
  Newsletter | Campaign,
  "id" | "subject" | "preheader" | "body" | "blocks" | "updatedAt" | "updatedBy"
> & { stepId?: string };

/** SQL: versions `v` of a draft, or of a step. */
const isOf = (tenant: Tenant, draftId: string, stepId: string | null = null) =>
  sql`${ofTenant(tenant, "v")} and v.draft_id = ${draftId} and v.step_id is not distinct from ${stepId}`;

/**
 * Keeps the content of a draft or a step that is about to be replaced. It is locked.
 * @param isReplaceable its writer only saves again: it takes the place of the one before that they wrote in the same ten minutes
 */
export async function keepVersion(em: EntityManager, content: KeptContent, isReplaceable: boolean): Promise<void> {
  const { id: draftId, stepId = null, updatedAt: writtenAt, updatedBy: writtenBy } = content;
  const { subject, preheader, body, blocks } = content;
  const tenant = tenantOf(em);
  const spanOf = (instant: unknown) => sql`date_bin(${SPAN}, ${instant}::timestamptz, 'epoch')`;
  await sql`
    delete from draft_versions v where ${isOf(tenant, draftId, stepId)} and (
      (${isReplaceable} and v.is_replaceable and v.written_by = ${writtenBy}
        and ${spanOf(sql`v.written_at`)} = ${spanOf(writtenAt)})
      or v.id in (select v.id from draft_versions v where ${isOf(tenant, draftId, stepId)}
        order by v.id desc offset ${MAX_VERSIONS - 1}::int))`.execute(kysely(em));
  em.create(DraftVersion, {
    ...{ id: newId("draftVersion"), ...tenant, draftId, stepId, subject, preheader, body, blocks },
    ...{ writtenAt, writtenBy, isReplaceable },
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
