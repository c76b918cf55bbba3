import { LockMode } from "@mikro-orm/postgresql";
import { type RawBuilder, sql } from "kysely";
import { Suppression, type SuppressionReason } from "../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../db/orm.ts";
import { lookupAddress, storedAddress } from "./address.ts";
import { HARD_BOUNCE, refreshEmailStatus } from "./audience/email-status.ts";
import { notFound } from "./errors.ts";
import { newId } from "./ids.ts";
import { emit } from "./webhooks/emit.ts";
import { suppressionRecord } from "./webhooks/records.ts";

export interface SuppressionOutcome {
  /** Addresses as they were given, each in one of the two, in that order. */
  added: string[];
  alreadySuppressed: string[];
}

/**
 * Puts addresses on the team's do-not-mail list. One that is on it keeps its reason and its `updated_at`. Subscribers and
 * their subscriptions stay as they are; a hard bounce makes contacts with its address INVALID. Reason MANUAL makes no event: the API client that adds
 * the address knows.
 * @param emails valid addresses; one that is repeated, in any spelling, counts once, in its first spelling
 */
export async function suppress(
  em: EntityManager,
  tenant: Tenant,
  emails: readonly string[],
  reason: SuppressionReason,
): Promise<SuppressionOutcome> {
  const distinct = new Map<string, string | null>();
  for (const { email, emailSpelling } of emails.map(storedAddress)) {
    if (!distinct.has(email)) distinct.set(email, emailSpelling);
  }
  if (distinct.size === 0) return { added: [], alreadySuppressed: [] };
  const inserted = await kysely(em)
    .insertInto("suppressions")
    .values(
      // Every caller inserts in the order of the addresses, so that two overlapping batches do not deadlock.
      [...distinct.keys()].sort().map((email) => ({
        id: newId("suppression"),
        team_id: tenant.teamId,
        environment: tenant.environment,
        email,
        email_spelling: distinct.get(email) ?? null,
        reason,
      })),
    )
    .onConflict((conflict) => conflict.columns(["team_id", "environment", "email"]).doNothing())
    .returning(["id", "email"])
    .execute();
  const added = new Set(inserted.map((row) => row.email));
  if (reason !== "MANUAL" && inserted.length > 0) {
    const ids = inserted.map((row) => row.id);
    await emit(em, tenant, "suppression.added", suppressionRows(tenant, sql`s.id = any(${ids})`));
  }
  if (reason === HARD_BOUNCE && added.size > 0) await refreshEmailStatus(em, tenant, [...added]);
  const shown = (isAdded: boolean) =>
    [...distinct].flatMap(([email, spelling]) => (added.has(email) === isAdded ? [spelling ?? email] : []));
  return { added: shown(true), alreadySuppressed: shown(false) };
}

/** Records of the tenant's suppressions `s` that meet a condition, for their events. */
const suppressionRows = (tenant: Tenant, condition: RawBuilder<unknown>) => ({
  record: suppressionRecord("s"),
  from: sql`suppressions s where ${ofTenant(tenant, "s")} and ${condition}`,
});

/**
 * The suppression of an address, in any spelling of it.
 * @throws {ApiError} `not_found` when the address is not suppressed
 */
export async function readSuppression(em: EntityManager, email: string): Promise<Suppression> {
  const suppression = await em.findOne(Suppression, { email: lookupAddress(email) });
  if (!suppression) throw notFound();
  return suppression;
}

/**
 * Lifts one suppression, of any reason. Opt-outs per list and the unsubscribes stay. Of a hard bounce, the contacts with
 * the address are ACTIVE again.
 * @throws {ApiError} `not_found`
 */
export async function liftSuppression(em: EntityManager, tenant: Tenant, suppressionId: string): Promise<void> {
  const suppression = await em.findOne(Suppression, { id: suppressionId }, { lockMode: LockMode.PESSIMISTIC_WRITE });
  if (!suppression) throw notFound();
  await emit(em, tenant, "suppression.removed", suppressionRows(tenant, sql`s.id = ${suppressionId}`));
  await em.remove(suppression).flush();
  if (suppression.reason === HARD_BOUNCE) await refreshEmailStatus(em, tenant, [suppression.email]);
}
