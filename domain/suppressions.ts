import { LockMode } from "@mikro-orm/postgresql";
import { Suppression } from "../db/entities/audience.ts";
import { type EntityManager, kysely, type Tenant } from "../db/orm.ts";
import { lookupAddress } from "./address.ts";
import { notFound } from "./errors.ts";
import { newId } from "./ids.ts";

/** Why an address is not mailed. Only MANUAL comes in through the API. */
export type SuppressionReason = "MANUAL" | "bounce:hard" | "bounce:soft" | "bounce:complaint" | "UNSUBSCRIBED";

export interface SuppressionOutcome {
  /** Addresses, each in one of the two, in the order in which they were given. */
  added: string[];
  alreadySuppressed: string[];
}

/**
 * Puts addresses on the team's do-not-mail list. One that stands there keeps its reason and its `updated_at`. Nothing
 * else changes: subscribers and their subscriptions stay as they are.
 * @param emails normalised addresses; repeated ones count once
 */
export async function suppress(
  em: EntityManager,
  tenant: Tenant,
  emails: readonly string[],
  reason: SuppressionReason,
): Promise<SuppressionOutcome> {
  const distinct = [...new Set(emails)];
  if (distinct.length === 0) return { added: [], alreadySuppressed: [] };
  const inserted = await kysely(em)
    .insertInto("suppressions")
    .values(
      // In one order everywhere, so that two overlapping batches wait for each other and do not deadlock.
      [...distinct].sort().map((email) => ({
        id: newId("suppression"),
        team_id: tenant.teamId,
        environment: tenant.environment,
        email,
        reason,
      })),
    )
    .onConflict((conflict) => conflict.columns(["team_id", "environment", "email"]).doNothing())
    .returning("email")
    .execute();
  const added = new Set(inserted.map((row) => row.email));
  return {
    added: distinct.filter((email) => added.has(email)),
    alreadySuppressed: distinct.filter((email) => !added.has(email)),
  };
}

/**
 * The suppression of an address, in whatever spelling it is given.
 * @throws {ApiError} `not_found` when the address is not suppressed
 */
export async function readSuppression(em: EntityManager, email: string): Promise<Suppression> {
  const suppression = await em.findOne(Suppression, { email: lookupAddress(email) });
  if (!suppression) throw notFound();
  return suppression;
}

/**
 * Lifts one suppression, whatever its reason. Opt-outs per list and the unsubscribes stay.
 * @throws {ApiError} `not_found`
 */
export async function liftSuppression(em: EntityManager, suppressionId: string): Promise<void> {
  const suppression = await em.findOne(Suppression, { id: suppressionId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!suppression) throw notFound();
  await em.remove(suppression).flush();
}
