import { sql } from "kysely";
import { type Campaign, DraftVersion, type Newsletter } from "../../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant, tenantOf } from "../../../db/orm.ts";
import { isoInstant } from "../../../db/sql.ts";
import { orNotFound } from "../../errors.ts";
import { newId } from "../../ids.ts";

/** Of one draft. */
const MAX_VERSIONS = 100;
const SPAN = sql`'10 minutes'::interval`;

/**
 * Keeps the content of a draft that is about to be replaced. The draft is locked.
 * @param isReplaceable its writer only saves again: it takes the place of the one before that they wrote in the same ten minutes
 */
export async function keepVersion(
  em: EntityManager,
  draft: Newsletter | Campaign,
  isReplaceable: boolean,
): Promise<void> {
  const { id: draftId, subject, preheader, body, blocks, updatedAt: writtenAt, updatedBy: writtenBy } = draft;
  const tenant = tenantOf(em);
  const spanOf = (instant: unknown) => sql`date_bin(${SPAN}, ${instant}::timestamptz, 'epoch')`;
  await sql`
    delete from draft_versions v where ${ofTenant(tenant, "v")} and v.draft_id = ${draftId} and (
      (${isReplaceable} and v.is_replaceable and v.written_by = ${writtenBy}
        and ${spanOf(sql`v.written_at`)} = ${spanOf(writtenAt)})
      or v.id in (select id from draft_versions where ${ofTenant(tenant)} and draft_id = ${draftId}
        order by id desc offset ${MAX_VERSIONS - 1}::int))`.execute(kysely(em));
  const content = { subject, preheader, body, blocks };
  em.create(DraftVersion, {
    ...{ id: newId("draftVersion"), ...tenant, draftId, ...content, writtenAt, writtenBy, isReplaceable },
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
export async function listVersions(em: EntityManager, tenant: Tenant, draftId: string): Promise<ListedVersion[]> {
  const { rows } = await sql<ListedVersion>`
    select v.id, ${isoInstant(sql`v.written_at`)} as at, m.name as by, v.subject, v.blocks is not null as has_blocks
    from draft_versions v left join members m on m.id = v.written_by and m.team_id = v.team_id
    where ${ofTenant(tenant, "v")} and v.draft_id = ${draftId} order by v.id desc`.execute(kysely(em));
  return rows;
}

/** @throws {ApiError} `not_found` */
export const readVersion = async (em: EntityManager, draftId: string, id: string): Promise<DraftVersion> =>
  orNotFound(await em.findOne(DraftVersion, { id, draftId }));
