import type { EntityManager, Tenant } from "../../db/orm.ts";
import { ApiError, notFound } from "../errors.ts";
import type { Vault } from "../secrets/crypto.ts";
import { type Draft, readDraft } from "./draft.ts";
import { assertDraft, assertKeyMaySend, checkGates, type PassedGates, type SendingKey } from "./gates.ts";
import { type PlanCounts, resolvePlan } from "./plan.ts";
import { type PreviewRow, readPreview, tokenFacts, voidForOtherKey } from "./preview.ts";
import { Refusal } from "./refusal.ts";
import type { SendResource } from "./resource.ts";
import { isGenuine, previewIdOf } from "./token.ts";

interface Check {
  tenant: Tenant;
  resource: SendResource;
  key: SendingKey;
}
/** The API checks the token, before anything is locked. */
interface TokenCheck extends Check {
  /** Null or empty when the client sent none. */
  token: string | null;
  vault: Vault;
}
/** The activity checks the plan of the preview that the token named, under the draft's lock. */
interface PlanCheck extends Check {
  previewId: string;
}

export interface CheckedPlan extends PassedGates {
  draft: Draft;
  counts: PlanCounts;
}

/**
 * Makes every refusal of a confirm, in the order that a client meets them. The API calls it with the token, for the
 * refusals that need no lock; the activity with the preview's id, in the transaction that arms the send, for the plan
 * and gates too.
 * @returns for a token its preview's id; for a preview the plan that the send is armed with
 * @throws {ApiError} the first refusal that applies
 */
export async function checkConfirm(em: EntityManager, check: TokenCheck): Promise<string>;
export async function checkConfirm(em: EntityManager, check: PlanCheck): Promise<CheckedPlan>;
export async function checkConfirm(em: EntityManager, check: TokenCheck | PlanCheck): Promise<string | CheckedPlan> {
  const { tenant, resource, key } = check;
  const underLock = "previewId" in check;

  assertKeyMaySend(key); // send_not_permitted
  const draft = await readDraft(em, tenant, resource, { lock: underLock }); // not_found
  const preview = underLock ? await findPreview(em, check) : await previewOfToken(em, check); // confirmation_required, confirmation_invalid
  if (preview.voided_at !== null) throw new Refusal("confirmation_stale", "voided");
  if (preview.used_at !== null) throw new Refusal("confirmation_stale", "used");
  if (preview.expired) throw new Refusal("confirmation_stale", "expired");
  assertDraft(draft); // resource_state_invalid
  if (preview.other_key_at !== null) throw new Refusal("send_plan_changed", "tried_by_other_key");
  if (preview.api_key_id !== key.id) {
    await voidForOtherKey(em, tenant, preview.id);
    throw new Refusal("send_plan_changed", "other_key");
  }
  if (!underLock) return preview.id;

  const { counts, digest } = await resolvePlan(em, withAccountsOf(preview, draft)).catch(refuseAsDrift);
  if (digest !== preview.plan_digest) throw new Refusal("send_plan_changed", "drift");
  // The digest holds the content, and the preview has read it: to read it again would wait, with locks held.
  // campaign_not_ready, sending_domain_unverified, send_domain_not_allowed, send_cap_exceeded, complaint_rate_exceeded,
  // quota_exceeded
  const gates = await checkGates(em, tenant, key, draft, counts);
  return { draft, counts, ...gates };
}

/** An account that is gone is no drift but a refusal of its own: the plan is compared as if it were there. */
function withAccountsOf(preview: PreviewRow, draft: Draft): Draft {
  if (draft.isAccountGone) {
    return { ...draft, fromAddresses: preview.from_addresses, accountAddresses: preview.account_addresses };
  }
  return draft.accounts.length > 0 ? draft : { ...draft, accountAddresses: preview.account_addresses };
}

/** A segment that could be evaluated at the preview and cannot be any more has changed. */
function refuseAsDrift(error: unknown): never {
  if (error instanceof ApiError && error.code === "filter_unsupported") throw new Refusal("send_plan_changed", "drift");
  throw error;
}

/**
 * @throws {ApiError} `confirmation_required` without a token; `confirmation_invalid` for one that is not of this
 *   resource
 */
async function previewOfToken(em: EntityManager, { tenant, resource, token, vault }: TokenCheck): Promise<PreviewRow> {
  if (!token) throw new ApiError("confirmation_required");
  const previewId = previewIdOf(token);
  const preview = previewId === undefined ? undefined : await readPreview(em, tenant, resource, previewId);
  if (!preview || !isGenuine(vault, token, tokenFacts(preview))) throw new ApiError("confirmation_invalid");
  return preview;
}

/** The preview whose token was checked; it is missing only when it was deleted since. */
async function findPreview(em: EntityManager, { tenant, resource, previewId }: PlanCheck): Promise<PreviewRow> {
  const preview = await readPreview(em, tenant, resource, previewId);
  if (!preview) throw notFound();
  return preview;
}
