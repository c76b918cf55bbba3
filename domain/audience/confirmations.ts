import { sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";
import type { ConfirmationToken, SubscriptionRef } from "../links.ts";
import { emit } from "../webhooks/emit.ts";
import { subscriptionRecord } from "../webhooks/records.ts";

/** How long a claimed mail is another's business; after that whoever claimed it is taken to be dead. */
const CLAIM_MINUTES = 10;

/** A confirmation mail to be sent. */
export interface DueConfirmation extends SubscriptionRef {
  email: string;
  listName: string;
  teamName: string;
}

/**
 * Takes confirmation mails that are due, oldest first, for the next ten minutes: what is not marked as sent by then is
 * due again, so a crash repeats a mail rather than forgets it. Commit before sending. Nobody on the do-not-mail list is
 * asked, and nobody in the test environment.
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
    returning s.list_id as "listId", s.subscriber_id as "subscriberId", due.email, due.list_name as "listName",
      due.team_name as "teamName"`.execute(kysely(em));
  return rows;
}

/** Notes what became of a confirmation mail: handed over, or refused for good. Either way it is not due again. */
export async function settleConfirmation(
  em: EntityManager,
  { listId, subscriberId }: SubscriptionRef,
  outcome: "sent" | "refused",
): Promise<void> {
  await kysely(em)
    .updateTable("subscriptions")
    .set({ confirmation_due_at: null, confirmation_sent_at: outcome === "sent" ? sql<string>`now()` : null })
    .where("list_id", "=", listId)
    .where("subscriber_id", "=", subscriberId)
    .execute();
}

/** What a confirmation link leads to. */
export interface Confirmation {
  listName: string;
  teamName: string;
}

/**
 * What a confirmation link is about: undefined when the link was not made for the subscriber's present address, or the
 * subscription is gone or ended by an opt-out.
 */
export async function readConfirmation(
  em: EntityManager,
  token: ConfirmationToken,
  { lock = false }: { lock?: boolean } = {},
): Promise<Confirmation | undefined> {
  const { rows } = await sql<Confirmation & { email: string }>`
    select p.email, l.name as "listName", t.name as "teamName"
    from subscriptions s
    join subscribers p on p.id = s.subscriber_id
    join lists l on l.id = s.list_id
    join teams t on t.id = s.team_id
    where s.list_id = ${token.listId} and s.subscriber_id = ${token.subscriberId} and s.status <> 'UNSUBSCRIBED'
    ${lock ? sql`for update of s for share of p` : sql``}`.execute(kysely(em));
  const [row] = rows;
  return row && token.verify(row.email) ? { listName: row.listName, teamName: row.teamName } : undefined;
}

/**
 * Confirms a PENDING subscription; one that is confirmed already stays as it is. Runs in the caller's transaction,
 * with no tenant: the signed link is the authority.
 * @returns what was confirmed, undefined as in `readConfirmation`
 */
export async function confirmSubscription(
  em: EntityManager,
  token: ConfirmationToken,
): Promise<Confirmation | undefined> {
  // Locked, so that the address is still the link's when the confirmation is written.
  const confirmation = await readConfirmation(em, token, { lock: true });
  if (!confirmation) return undefined;
  const confirmed = await kysely(em)
    .updateTable("subscriptions")
    .set({ status: "CONFIRMED", confirmed_at: sql<string>`now()`, confirmation_due_at: null })
    .where("list_id", "=", token.listId)
    .where("subscriber_id", "=", token.subscriberId)
    .where("status", "=", "PENDING")
    .returning(["team_id as teamId", "environment"])
    .executeTakeFirst();
  if (confirmed) {
    await emit(em, confirmed, "subscription.confirmed", {
      record: subscriptionRecord("s"),
      from: sql`subscriptions s where s.list_id = ${token.listId} and s.subscriber_id = ${token.subscriberId}`,
    });
  }
  return confirmation;
}
