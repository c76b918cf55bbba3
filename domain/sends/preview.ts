import { sql } from "kysely";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { type Draft, readDraft } from "./draft.ts";
import { assertDraftReady, assertKeyMaySend, checkGates, type SendingKey } from "./gates.ts";
import { resolvePlan } from "./plan.ts";
import { Refusal } from "./refusal.ts";
import type { SendResource } from "./resource.ts";
import { TOKEN_LIFETIME_SECONDS } from "./token.ts";

/** Reads what a key brings to a send. @throws {Error} when it is gone: the API has just authenticated it */
export async function readSendingKey(
  em: EntityManager,
  { teamId, environment }: Tenant,
  apiKeyId: string,
): Promise<SendingKey> {
  const key = await kysely(em)
    .selectFrom("api_keys")
    .select(["id", "environment", "requires_approval", "send_domains", "daily_send_cap", "lineage_id"])
    .where("id", "=", apiKeyId)
    .where("team_id", "=", teamId)
    .where("environment", "=", environment)
    .executeTakeFirstOrThrow();
  return {
    id: key.id,
    environment: key.environment,
    requiresApproval: key.requires_approval,
    sendDomains: key.send_domains,
    dailySendCap: key.daily_send_cap,
    lineageId: key.lineage_id,
  };
}

/** @throws {Refusal} `resource_state_invalid` unless the newsletter is a draft */
export function assertDraft({ status }: Pick<Draft, "status">): void {
  if (status !== "DRAFT") throw new Refusal("resource_state_invalid", "not_draft");
}

export interface PreviewRequest extends Tenant {
  previewId: string;
  resource: SendResource;
  apiKeyId: string;
}

/** What a preview found out, whether or not it is written down. */
export async function resolvePreview(em: EntityManager, request: Omit<PreviewRequest, "previewId">) {
  const key = await readSendingKey(em, request, request.apiKeyId);
  assertKeyMaySend(key);
  const draft = await readDraft(em, request, request.resource);
  assertDraft(draft);
  assertDraftReady(draft);
  const plan = await resolvePlan(em, draft);
  const gates = await checkGates(em, request, key, draft, plan.counts);
  return { draft, plan, ...gates };
}

/**
 * Resolves the plan, runs every gate read-only and writes the preview's row. A second call with the same `previewId`
 * (a retry under the same Idempotency-Key) makes it anew, unless it was used.
 * @throws {ApiError} `not_found`, or the first gate's refusal
 */
export async function writePreview(em: EntityManager, request: PreviewRequest): Promise<void> {
  const { draft, plan, cap, complaintRate } = await resolvePreview(em, request);
  const { counts, digest } = plan;
  const facts = {
    plan_digest: digest,
    total: counts.total,
    not_opted_in: counts.notOptedIn,
    suppressed: counts.suppressed,
    eligible: counts.eligible,
    credits_required: counts.eligible,
    cap_limit: cap.limit,
    cap_used_today: cap.usedToday,
    from_address: draft.fromEmail ?? "",
    account_address: draft.accountAddress ?? "",
    complaint_rate: complaintRate,
    expires_at: sql<string>`clock_timestamp() + make_interval(secs => ${TOKEN_LIFETIME_SECONDS})`,
  };
  await kysely(em)
    .insertInto("send_previews")
    .values({
      id: request.previewId,
      team_id: request.teamId,
      environment: request.environment,
      resource_type: draft.resource.type,
      resource_id: draft.resource.id,
      api_key_id: request.apiKeyId,
      ...facts,
    })
    .onConflict((conflict) => conflict.column("id").doUpdateSet(facts).where("send_previews.used_at", "is", null))
    .execute();
}

/**
 * Makes a preview's token useless.
 * @returns false when it was used: there is a send now
 */
export async function voidPreview(em: EntityManager, previewId: string): Promise<boolean> {
  await kysely(em)
    .updateTable("send_previews")
    .set({ used_at: sql<string>`clock_timestamp()` })
    .where("id", "=", previewId)
    .where("used_at", "is", null)
    .execute();
  const send = await kysely(em).selectFrom("sends").select("id").where("id", "=", previewId).executeTakeFirst();
  return send === undefined;
}

/** A preview's row, if the tenant has it for this resource. `expired` is by the database clock. */
export async function readPreview(
  em: EntityManager,
  { teamId, environment }: Tenant,
  resource: SendResource,
  previewId: string,
) {
  return kysely(em)
    .selectFrom("send_previews")
    .selectAll()
    .select(sql<boolean>`expires_at <= clock_timestamp()`.as("expired"))
    .where("id", "=", previewId)
    .where("team_id", "=", teamId)
    .where("environment", "=", environment)
    .where("resource_type", "=", resource.type)
    .where("resource_id", "=", resource.id)
    .executeTakeFirst();
}
