import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../../db/orm.ts";
import { limitStatements } from "../../../db/statements.ts";
import { transaction } from "../../../db/transaction.ts";
import { isCancelled } from "../../../db/unreachable.ts";
import { readAccess } from "../../access/key-lookup.ts";
import { ApiError } from "../../errors.ts";
import { type Draft, readDraft } from "../drafts/draft.ts";
import { planMembers } from "../drafts/members.ts";
import { Refusal } from "../refusal.ts";
import { type SendResource, sendScope } from "../resource.ts";
import {
  assertDraft,
  assertKeyMaySend,
  checkGates,
  contentGates,
  type GateState,
  type Gates,
  keyGates,
  type PassedGates,
  passGates,
  permissionRefusal,
  type SendCap,
  type SendingKey,
  sendGates,
  walkGates,
} from "./gates.ts";
import { type PlanCounts, type ResolvedPlan, resolvePlan } from "./plan.ts";
import { startOf } from "./send-time.ts";
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
  await passGates(draftGates(em, draft));
  return draft;
}

/** The gates before the recipients are counted. */
async function* draftGates(em: EntityManager, draft: Draft): Gates {
  const { accounts, isAccountGone, missing } = draft;
  yield* contentGates(draft);
  const hasAccount = accounts.length > 0 || isAccountGone;
  const noAccount = missing.sender ? null : new Refusal("campaign_not_ready", "no_account");
  yield { gate: "account", refusal: hasAccount ? undefined : noAccount };
  yield { gate: "targets", refusal: await planMembers(em, draft).then(() => undefined, apiErrorOf) };
}

/** @throws any other error */
function apiErrorOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  throw error;
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
  return withinLimit(em, planLimitMs, async (tx) => {
    const plan = await resolvePlan(tx, draft);
    const preview = { draft, plan, ...(await checkGates(tx, tenant, key, draft, plan.counts)) };
    await keep?.(tx, preview);
    return preview;
  });
}

async function withinLimit<T>(em: EntityManager, limitMs: number, work: (tx: EntityManager) => Promise<T>): Promise<T> {
  try {
    return await transaction(em, async (tx) => {
      await limitStatements(tx, limitMs);
      return work(tx);
    });
  } catch (error) {
    throw isCancelled(error) ? new PlanTooSlow(limitMs) : error;
  }
}

export interface GateReport extends PassedGates<SendCap | null> {
  /** Each gate once, in their order. */
  gates: GateState[];
  /** Null where the draft has no recipients to count. */
  counts: PlanCounts | null;
}

/**
 * All gates that a preview of the draft would meet, where the preview is refused by the first. Nothing is written.
 * @param sender the key that would send, or why the caller has none: the gates of a key are not checked then
 * @throws {ApiError} `not_found`; `resource_state_invalid` unless it is a draft; `filter_unsupported` after `planLimitMs`
 */
export async function reportGates(
  em: EntityManager,
  tenant: Tenant,
  resource: SendResource,
  sender: SendingKey | ApiError,
  planLimitMs: number,
): Promise<GateReport> {
  const draft = await readDraft(em, tenant, resource, { lock: false });
  assertDraft(draft);
  const states = new Map<GateState["gate"], GateState>();
  const note = (state: GateState) => {
    if (states.get(state.gate)?.refusal !== undefined) return;
    // It takes the place of its last check.
    states.delete(state.gate);
    states.set(state.gate, state);
  };
  const key = sender instanceof ApiError ? null : sender;
  note({ gate: "permission", refusal: sender instanceof ApiError ? sender : permissionRefusal(sender) });
  await walkGates(draftGates(em, draft), note);
  return withinLimit(em, planLimitMs, async (tx) => {
    const counts = states.get("targets")?.refusal ? null : (await resolvePlan(tx, draft)).counts;
    const ofKey = key ? keyGates(tx, key, draft, counts) : gatesWithoutKey();
    const found = await walkGates(sendGates<SendCap | null>(tx, tenant, draft, counts, ofKey), note);
    return { gates: [...states.values()], counts, ...found };
  });
}

async function* gatesWithoutKey(): Gates<null> {
  yield { gate: "domains", refusal: null };
  yield { gate: "cap", refusal: null };
  return null;
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
    tracked: counts.tracked,
    cap_limit: cap.limit,
    cap_used_today: cap.usedToday,
    from_addresses: [...draft.fromAddresses],
    account_addresses: [...draft.accountAddresses],
    target_ids: [...draft.targetIds],
    send_at: draft.sendAt === null ? null : startOf(new Date(), draft),
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
