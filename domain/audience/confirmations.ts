import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { ConfirmationToken } from "../links.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriptionRecord } from "../webhooks/records.ts";
import { CONFIRMED } from "./initial-status.ts";

/** The names that the page behind a confirmation link shows. */
export interface Confirmation {
  listName: string;
  teamName: string;
}

/**
 * The list and team of a confirmation link: undefined when the link was not made for the subscriber's present address, or
 * the subscription is gone or ended by an opt-out. It takes no tenant: the signed link is the authority.
 */
export async function readConfirmation(em: EntityManager, token: ConfirmationToken): Promise<Confirmation | undefined> {
  return (await findSubscription(em, token))?.confirmation;
}

async function findSubscription(
  em: EntityManager,
  token: ConfirmationToken,
  { lock = false }: { lock?: boolean } = {},
): Promise<{ tenant: Tenant; confirmation: Confirmation; isConfirmed: boolean } | undefined> {
  const { rows } = await sql<Confirmation & Tenant & { email: string; isConfirmed: boolean }>`
    select s.team_id as "teamId", s.environment, s.status = 'CONFIRMED' as "isConfirmed", p.email,
      l.name as "listName", t.name as "teamName"
    from subscriptions s
    join subscribers p on p.id = s.subscriber_id
    join lists l on l.id = s.list_id
    join teams t on t.id = s.team_id
    where s.list_id = ${token.listId} and s.subscriber_id = ${token.subscriberId} and s.status <> 'UNSUBSCRIBED'
    ${lock ? sql`for update of s for share of p` : sql``}`.execute(kysely(em));
  const [row] = rows;
  if (!row || !token.verify(row.email)) return undefined;
  const { teamId, environment, listName, teamName, isConfirmed } = row;
  return { tenant: { teamId, environment }, confirmation: { listName, teamName }, isConfirmed };
}

/**
 * Confirms a PENDING subscription; one that is confirmed already stays as it is. Runs in the caller's transaction.
 * @returns the confirmed list and team, undefined as in `readConfirmation`
 */
export async function confirmSubscription(
  em: EntityManager,
  token: ConfirmationToken,
): Promise<Confirmation | undefined> {
  const present = await findSubscription(em, token);
  if (!present || present.isConfirmed) return present?.confirmation;
  // Locked, so that the address does not change before the confirmation is written.
  const found = await findSubscription(em, token, { lock: true });
  if (!found) return undefined;
  const { tenant, confirmation } = found;
  const confirmed = await kysely(em)
    .updateTable("subscriptions")
    .set(CONFIRMED)
    .where(ofTenant(tenant))
    .where("list_id", "=", token.listId)
    .where("subscriber_id", "=", token.subscriberId)
    .where("status", "=", "PENDING")
    .executeTakeFirst();
  if (confirmed.numUpdatedRows > 0n) {
    await emit(em, tenant, "subscription.confirmed", {
      record: subscriptionRecord("s"),
      from: sql`subscriptions s where ${ofTenant(tenant, "s")}
        and s.list_id = ${token.listId} and s.subscriber_id = ${token.subscriberId}`,
    });
  }
  return confirmation;
}
