import { sql } from "kysely";
import type { BroadcastStatus } from "../../db/entities/send.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { isoInstant } from "../../db/sql.ts";
import { ApiError, ERRORS, type ErrorCode } from "../errors.ts";
import { resourceTypeOf } from "./inspection.ts";
import { isRefusalReason, REFUSAL_REASONS, Refusal } from "./refusal.ts";
import type { SendResource } from "./resource.ts";

/** A preview or a confirm that was refused. */
export interface RefusedStep {
  step: "preview" | "confirm";
  requestId: string;
  apiKeyId: string | null;
  /** Null where it was refused before its send had an id. */
  sendId: string | null;
}

/** Keeps the last refusal of a newsletter or campaign, for operators. Of another tenant's, and of none, it keeps nothing. */
export async function recordRefusal(
  em: EntityManager,
  tenant: Tenant,
  { type, id }: SendResource,
  { step, requestId, apiKeyId, sendId }: RefusedStep,
  refusal: ApiError,
): Promise<void> {
  const reason = refusal instanceof Refusal ? refusal.reason : null;
  await sql`
    insert into send_refusals (resource_id, team_id, environment, step, code, reason, request_id, api_key_id, send_id)
    select r.id, r.team_id, r.environment, ${step}, ${refusal.code}, ${reason}, ${requestId}, ${apiKeyId}, ${sendId}
    from ${sql.table(`${type}s`)} r where r.id = ${id} and ${ofTenant(tenant, "r")}
    on conflict (resource_id) do update set (step, code, reason, request_id, api_key_id, send_id, refused_at)
      = (excluded.step, excluded.code, excluded.reason, excluded.request_id, excluded.api_key_id, excluded.send_id, now())`.execute(
    kysely(em),
  );
}

/** The last refusal of a newsletter or campaign. Instants are ISO 8601, UTC. */
export interface LastRefusal extends RefusedStep {
  code: ErrorCode;
  /** The gate's own reason; null where the code says it all. */
  reason: string | null;
  meaning: string;
  refusedAt: string;
  /** When a later preview was not refused. */
  previewedAt: string | null;
}

/**
 * Reads why the last preview or confirm that was refused was refused; undefined where none was in 30 days.
 * @param id of a newsletter or a campaign
 * @throws {ApiError} `validation_failed` for the id of another kind; `not_found`
 */
export async function readLastRefusal(
  em: EntityManager,
  id: string,
): Promise<{ status: BroadcastStatus; refusal: LastRefusal | undefined }> {
  const type = resourceTypeOf(id);
  if (!type) throw new ApiError("validation_failed", `${id} is no id of a newsletter (nl_…) or a campaign (cmp_…).`);
  const { rows } = await sql<Omit<LastRefusal, "meaning"> & { status: BroadcastStatus }>`
    select d.status, r.step, r.code, r.reason, r.request_id as "requestId", r.api_key_id as "apiKeyId", r.send_id as "sendId",
      ${isoInstant(sql`r.refused_at`)} as "refusedAt", ${isoInstant(sql`(
        select max(p.created_at) from send_previews p
        where p.resource_id = d.id and p.team_id = d.team_id and p.environment = d.environment
          and p.created_at > r.refused_at)`)} as "previewedAt"
    from ${sql.table(`${type}s`)} d left join send_refusals r
      on r.resource_id = d.id and r.team_id = d.team_id and r.environment = d.environment
    where d.id = ${id}`.execute(kysely(em));
  const [row] = rows;
  if (!row) throw new ApiError("not_found", `There is no ${type} ${id}.`);
  const { status, ...refusal } = row;
  // No refusal was joined.
  if (refusal.code === null) return { status, refusal: undefined };
  const { code, reason } = refusal;
  return {
    status,
    refusal: { ...refusal, meaning: isRefusalReason(reason) ? REFUSAL_REASONS[reason] : ERRORS[code].meaning },
  };
}
