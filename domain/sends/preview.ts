import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import { limitStatements } from "../../db/statements.ts";
import { transaction } from "../../db/transaction.ts";
import { isCancelled } from "../../db/unreachable.ts";
import { readAccess } from "../access/key-lookup.ts";
import { ApiError } from "../errors.ts";
import { type Draft, readDraft } from "./draft.ts";
import {
  assertContent,
  assertDraft,
  assertKeyMaySend,
  checkGates,
  type PassedGates,
  type SendingKey,
} from "./gates.ts";
import { planMembers } from "./members.ts";
import { type ResolvedPlan, resolvePlan } from "./plan.ts";
import { Refusal } from "./refusal.ts";
import { type SendResource, sendScope } from "./resource.ts";
import { TOKEN_LIFETIME_SECONDS, type TokenFacts } from "./token.ts";

/**
 * The first refusals of a preview, in their order. They may quote the content or the segment, so the API makes them
 * itself: the workflow's history must not hold them. @throws {ApiError} the first that applies
 */
export async function checkDraft(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  key: SendingKey,
): Promise<Draft> {
  assertKeyMaySend(key);
  const draft = await readDraft(em, tenant, resource, { lock: false });
  assertDraft(draft);
  await assertContent(draft);
  if (draft.accounts.length === 0 && !draft.isAccountGone) throw new Refusal("campaign_not_ready", "no_account");
  await planMembers(em, draft);
  return draft;
}

export interface ResolvedPreview extends PassedGates {
  draft: Draft;
  plan: ResolvedPlan;
}

/**
 * Refusals come in the order of `checkDraft`, then `checkGates`.
 * @param keep keeps the result, in the transaction that found it; without it nothing is written
 * @throws {ApiError} the first refusal that applies; `filter_unsupported` also when `planLimitMs` have passed
 */
export async function resolvePreview(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  key: SendingKey,
  planLimitMs: number,
  keep?: (em: EntityManager, preview: ResolvedPreview) => Promise<void>,
): Promise<ResolvedPreview> {
  const draft = await checkDraft(em, tenant, resource, key);
  try {
    return await transaction(em, async (tx) => {
      await limitStatements(tx, planLimitMs);
      const plan = await resolvePlan(tx, draft);
      const preview = { draft, plan, ...(await checkGates(tx, tenant, key, draft, plan.counts)) };
      await keep?.(tx, preview);
      return preview;
    });
  } catch (error) {
    throw isCancelled(error) ? new PlanTooSlow(planLimitMs) : error;
  }
}

export class PlanTooSlow extends ApiError {
  constructor(limitMs: number) {
    super(
      "filter_unsupported",
      `The recipients cannot be counted within ${limitMs / 1000} s: give the segment fewer conditions.`,
    );
  }
}

export interface PreviewRequest extends Tenant {
  previewId: string;
  resource: SendResource;
  apiKeyId: string;
}

/**
 * Resolves a preview and writes its row, in place of the one that an earlier try wrote, unless that was used.
 * @returns the number of recipients
 * @throws {ApiError} as `readAccess`, then as `resolvePreview`
 */
export async function writePreview(em: EntityManager, request: PreviewRequest, planLimitMs: number): Promise<number> {
  const { resource, apiKeyId, teamId, environment } = request;
  const { caller: key } = await readAccess(em, request, apiKeyId, sendScope(resource));
  const keep = (tx: EntityManager, preview: ResolvedPreview) => insertPreview(tx, request, preview);
  const { plan } = await resolvePreview(em, { teamId, environment }, resource, key, planLimitMs, keep);
  return plan.counts.total;
}

async function insertPreview(
  em: EntityManager,
  { previewId, resource, apiKeyId, teamId, environment }: PreviewRequest,
  { draft, plan: { counts, digest }, cap, complaintRate }: ResolvedPreview,
): Promise<void> {
  const facts = {
    plan_digest: digest,
    total: counts.total,
    ineligible: counts.ineligible,
    suppressed: counts.suppressed,
    eligible: counts.eligible,
    credits_required: counts.eligible,
    cap_limit: cap.limit,
    cap_used_today: cap.usedToday,
    from_addresses: [...draft.fromAddresses],
    account_addresses: [...draft.accountAddresses],
    complaint_rate: complaintRate,
    other_key_at: null,
    expires_at: sql<string>`clock_timestamp() + make_interval(secs => ${TOKEN_LIFETIME_SECONDS})`,
  };
  await kysely(em)
    .insertInto("send_previews")
    .values({
      id: previewId,
      team_id: teamId,
      environment,
      resource_type: resource.type,
      resource_id: resource.id,
      api_key_id: apiKeyId,
      ...facts,
    })
    .onConflict((conflict) => conflict.column("id").doUpdateSet(facts).where("send_previews.used_at", "is", null))
    .execute();
}

/** For an operator's cancel. @returns false when it was used: there is a send now */
export async function voidPreview(em: EntityManager, previewId: string): Promise<boolean> {
  await kysely(em)
    .updateTable("send_previews")
    .set({ used_at: sql<string>`clock_timestamp()`, voided_at: sql<string>`clock_timestamp()` })
    .where("id", "=", previewId)
    .where("used_at", "is", null)
    .execute();
  const send = await kysely(em).selectFrom("sends").select("id").where("id", "=", previewId).executeTakeFirst();
  return send === undefined;
}

/** Another key than the preview's tried to confirm it. */
export async function voidForOtherKey(em: EntityManager, tenant: Tenant, previewId: string): Promise<void> {
  await kysely(em)
    .updateTable("send_previews")
    .set({ other_key_at: sql<string>`clock_timestamp()` })
    .where("id", "=", previewId)
    .where(ofTenant(tenant))
    .where("used_at", "is", null)
    .execute();
}

/** `expired` is by the database clock. */
export async function readPreview(em: EntityManager, tenant: Tenant, resource: SendResource, previewId: string) {
  return kysely(em)
    .selectFrom("send_previews")
    .selectAll()
    .select(sql<boolean>`expires_at <= clock_timestamp()`.as("expired"))
    .where("id", "=", previewId)
    .where(ofTenant(tenant))
    .where("resource_type", "=", resource.type)
    .where("resource_id", "=", resource.id)
    .executeTakeFirst();
}

export type PreviewRow = NonNullable<Awaited<ReturnType<typeof readPreview>>>;

export const tokenFacts = (row: PreviewRow): TokenFacts => ({
  previewId: row.id,
  apiKeyId: row.api_key_id,
  planDigest: row.plan_digest,
  expiresAt: new Date(row.expires_at),
});
