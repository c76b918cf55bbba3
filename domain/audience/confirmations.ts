import { sql } from "kysely";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { ConfirmationToken, SubscriptionRef } from "../links.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriptionRecord } from "../webhooks/records.ts";

/** How long a claim holds; after that the process that made it is presumed dead. */
const CLAIM_MINUTES = 10;

/** A confirmation mail to be sent. */
export interface DueConfirmation extends SubscriptionRef, Tenant {
  email: string;
  listName: string;
  teamName: string;
}

/**
 * Claims confirmation mails of all teams that are due, oldest first, for the next ten minutes. A mail that is not settled
 * by then is due again, so a crash repeats a mail and never drops one. Commit before sending. Suppressed addresses and
 * the test environment get no mail.
 */
export async function claimConfirmations(em: EntityManager, limit: number): Promise<DueConfirmation[]> {
  const { rows } = await sql<DueConfirmation>`
    with due as (
      select s.list_id, s.subscriber_id, p.email, l.name as list_name, t.name as team_name
      from subscriptions s
      join subscribers p on p.id = s.subscriber_id
      join lists l on l.id = s.list_id
      join teams t on t.id = s.team_id
      where s.confirmation_due_at <= clock_timestamp() and s.status = 'PENDING' and s.environment = 'LIVE'
        and not exists (select 1 from suppressions x
          where x.team_id = s.team_id and x.environment = s.environment and x.email = p.email)
      order by s.confirmation_due_at
      limit ${limit}
      for update of s skip locked
    )
    update subscriptions s
    set confirmation_due_at = clock_timestamp() + make_interval(mins => ${CLAIM_MINUTES})
    from due where s.list_id = due.list_id and s.subscriber_id = due.subscriber_id
    returning s.team_id as "teamId", s.environment, s.list_id as "listId", s.subscriber_id as "subscriberId", due.email, due.list_name as "listName",
      due.team_name as "teamName"`.execute(kysely(em));
  return rows;
}

/** Records the outcome of a confirmation mail: sent, or refused for good. Either way it is not due again. */
export async function settleConfirmation(
  em: EntityManager,
  { listId, subscriberId, ...tenant }: SubscriptionRef & Tenant,
  outcome: "sent" | "refused",
): Promise<void> {
  await kysely(em)
    .updateTable("subscriptions")
    .set({ confirmation_due_at: null, confirmation_sent_at: outcome === "sent" ? sql<string>`now()` : null })
    .where(ofTenant(tenant))
    .where("list_id", "=", listId)
    .where("subscriber_id", "=", subscriberId)
    .execute();
}

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
): Promise<{ tenant: Tenant; confirmation: Confirmation } | undefined> {
  const { rows } = await sql<Confirmation & Tenant & { email: string }>`
    select s.team_id as "teamId", s.environment, p.email, l.name as "listName", t.name as "teamName"
    from subscriptions s
    join subscribers p on p.id = s.subscriber_id
    join lists l on l.id = s.list_id
    join teams t on t.id = s.team_id
    where s.list_id = ${token.listId} and s.subscriber_id = ${token.subscriberId} and s.status <> 'UNSUBSCRIBED'
    ${lock ? sql`for update of s for share of p` : sql``}`.execute(kysely(em));
  const [row] = rows;
  if (!row || !token.verify(row.email)) return undefined;
  const { teamId, environment, listName, teamName } = row;
  return { tenant: { teamId, environment }, confirmation: { listName, teamName } };
}

/**
 * Confirms a PENDING subscription; one that is confirmed already stays as it is. Runs in the caller's transaction.
 * @returns the confirmed list and team, undefined as in `readConfirmation`
 */
export async function confirmSubscription(
  em: EntityManager,
  token: ConfirmationToken,
): Promise<Confirmation | undefined> {
  // Locked, so that the address does not change before the confirmation is written.
  const found = await findSubscription(em, token, { lock: true });
  if (!found) return undefined;
  const { tenant, confirmation } = found;
  const confirmed = await kysely(em)
    .updateTable("subscriptions")
    .set({ status: "CONFIRMED", confirmed_at: sql<string>`now()`, confirmation_due_at: null })
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
