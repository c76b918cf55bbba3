import type { EntityManager, Tenant } from "../../../db/orm.ts";
import { ApiError, orNotFound } from "../../errors.ts";
import type { Vault } from "../../secrets/crypto.ts";
import { type Draft, readDraft } from "../drafts/draft.ts";
import { Refusal } from "../refusal.ts";
import type { SendResource } from "../resource.ts";
import { assertDraft, assertKeyMaySend, checkGates, type PassedGates, type SendingKey } from "./gates.ts";
import { type PlanCounts, resolvePlan } from "./plan.ts";
import { type PreviewRow, readPreview, tokenFacts, voidForOtherKey } from "./preview.ts";
import { isGenuine, previewIdOf } from "./token.ts";

interface Check {
  tenant: Tenant;
  resource: SendResource;
  key: SendingKey;
}

export interface CheckedPlan extends PassedGates {
  draft: Draft;
  counts: PlanCounts;
}

/** Makes the refusals of a confirm before those of its plan, in the order that a client meets them. */
async function checkConfirm(
  em: EntityManager,
  { tenant, resource, key }: Check,
  findPreview: () => Promise<PreviewRow>,
  options: { lock: boolean },
) {
  assertKeyMaySend(key); // send_not_permitted
  const draft = await readDraft(em, tenant, resource, options); // not_found
  const preview = await findPreview(); // confirmation_required, confirmation_invalid
  if (preview.voided_at !== null) throw new Refusal("confirmation_stale", "voided");
  if (preview.used_at !== null) throw new Refusal("confirmation_stale", "used");
  if (preview.expired) throw new Refusal("confirmation_stale", "expired");
  assertDraft(draft); // resource_state_invalid
  if (preview.other_key_at !== null) throw new Refusal("send_plan_changed", "tried_by_other_key");
  if (preview.api_key_id !== key.id) {
    await voidForOtherKey(em, tenant, preview.id);
    throw new Refusal("send_plan_changed", "other_key");
  }
  return { draft, preview };
}

/**
 * The refusals that the API makes before anything is locked.
 * @param token null or empty when the client sent none
 * @returns the id of its preview
 * @throws {ApiError} the first refusal that applies
 */
export async function checkToken(
  em: EntityManager,
  check: Check,
  { token, vault }: { token: string | null; vault: Vault },
): Promise<string> {
  const findPreview = async () => {
    if (!token) throw new ApiError("confirmation_required");
    const previewId = previewIdOf(token);
    const found = previewId && (await readPreview(em, check.tenant, check.resource, previewId));
    if (!found || !isGenuine(vault, token, tokenFacts(found))) throw new ApiError("confirmation_invalid");
    return found;
  };
  return (await checkConfirm(em, check, findPreview, { lock: false })).preview.id;
}

/**
 * The same refusals and those of the plan, under the draft's lock, in the transaction that arms the send.
 * @param previewId whose token was checked; its preview is missing only when it was deleted since
 * @throws {ApiError} the first refusal that applies
 */
export async function checkPlan(em: EntityManager, check: Check, previewId: string): Promise<CheckedPlan> {
  const findPreview = async () => orNotFound(await readPreview(em, check.tenant, check.resource, previewId));
  const { draft, preview } = await checkConfirm(em, check, findPreview, { lock: true });
  const { counts, digest } = await resolvePlan(em, withAccountsOf(preview, draft)).catch(refuseAsDrift);
  if (digest !== preview.plan_digest) throw new Refusal("send_plan_changed", "drift");
  // The digest holds the content, and the preview has read it: to read it again would wait, with locks held.
  // campaign_not_ready, sending_domain_unverified, send_domain_not_allowed, send_cap_exceeded, complaint_rate_exceeded,
  // quota_exceeded
  return { draft, counts, ...(await checkGates(em, check.tenant, check.key, draft, counts)) };
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
