import { LockMode } from "@mikro-orm/postgresql";
import { EmailAccount } from "../../db/entities/account.ts";
import { Campaign } from "../../db/entities/send.ts";
import type { EntityManager } from "../../db/orm.ts";
import { lockSegment } from "../audience/segments/segments.ts";
import { ApiError } from "../errors.ts";
import { lockDraft } from "./drafts.ts";

/** Sending accounts of a campaign at most: each has a lane of its own in the send. */
export const MAX_CAMPAIGN_ACCOUNTS = 20;

/**
 * Sets the accounts that mail a campaign, in this order; none takes them all away.
 * @throws {ApiError} `not_found`, which names an account; `resource_state_invalid` unless a draft;
 *   `resource_limit_reached`
 */
export async function attachAccounts(
  em: EntityManager,
  campaignId: string,
  accountIds: readonly string[],
): Promise<Campaign> {
  const ids = [...new Set(accountIds)];
  if (ids.length > MAX_CAMPAIGN_ACCOUNTS) {
    throw new ApiError("resource_limit_reached", `A campaign has at most ${MAX_CAMPAIGN_ACCOUNTS} sending accounts.`);
  }
  const draft = await lockDraft(em, Campaign, campaignId);
  const known = await em.find(EmailAccount, { id: { $in: ids } }, { fields: ["id"] });
  const unknown = ids.find((id) => !known.some((account) => account.id === id));
  if (unknown !== undefined) throw new ApiError("not_found", `The team has no sending account ${unknown}.`);
  draft.accountIds = ids;
  await em.flush();
  return em.refreshOrFail(draft);
}

/** @throws {ApiError} `not_found` for either; `resource_state_invalid` unless a draft */
export async function attachSegment(em: EntityManager, campaignId: string, segmentId: string): Promise<Campaign> {
  await lockSegment(em, segmentId, LockMode.PESSIMISTIC_READ);
  const draft = await lockDraft(em, Campaign, campaignId);
  draft.segmentId = segmentId;
  await em.flush();
  return em.refreshOrFail(draft);
}
