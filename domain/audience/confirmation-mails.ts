import { sql } from "kysely";
import type { WithheldReason } from "../../db/entities/audience.ts";
import { type EntityManager, kysely, ofTenant, type Tenant } from "../../db/orm.ts";
import type { ConfirmationMailRef, SubscriptionRef } from "../mail/links.ts";
import { claimedUntil, isRecent, mailboxOf } from "../mail/system-mail.ts";
import { LOOK, type Look } from "../teams/brand.ts";
import {
  ADDRESS_WINDOW_DAYS,
  applyLimits,
  type ConfirmationLimits,
  type CountedMail,
  isDropped,
} from "./confirmation-limits.ts";
import { isUnsubscribe } from "./suppressions.ts";

/** How long the first claim holds; after that the process that made it is presumed dead. */
const CLAIM_MINUTES = 10;

export interface DueConfirmation extends SubscriptionRef, Required<ConfirmationMailRef>, Tenant, Look {
  listName: string;
  backgroundColor: string;
  postalAddress: string | null;
  /** Of `mailboxOf`. */
  mailbox: string;
  /** The UTC day for which it counts, ISO 8601. */
  day: string;
  /** As Postgres writes an instant. */
  claimedUntil: string;
  /** It was first tried more than a day ago. */
  isLate: boolean;
  isByForm: boolean;
}

/** SQL: stands for the sign-up after an opt-out of a row `s`, in the link of its confirmation; null for none. */
export const signUpMark = sql<string | null>`(extract(epoch from s.signed_up_again_at) * 1000)::bigint::text`;

/** SQL: the sign-up of a row `s` that waits for its confirmation was made at a form. */
export const isOfForm = sql<boolean>`coalesce(s.form_at >= coalesce(s.signed_up_again_at, s.created_at), false)`;

/** A mail that is withheld until the next UTC day. */
export interface Withheld {
  teamId: string;
  reason: WithheldReason;
}

/**
 * Claims due confirmation mails of all teams, oldest first, for ten minutes, and later for up to an hour: commit before
 * sending. One that is not settled by then is due again; one that is withheld by a limit is due on the next UTC day, unless it `isDropped`.
 */
export async function claimConfirmations(
  em: EntityManager,
  batch: number,
  limits: ConfirmationLimits,
): Promise<{ claimed: DueConfirmation[]; withheld: Withheld[] }> {
  // Of two claims at once, the second counts the mails of the first.
  await sql`select pg_advisory_xact_lock(hashtextextended('confirmations', 0))`.execute(kysely(em));
  const due = await readDueConfirmations(em, batch);
  const reasons = applyLimits(due, limits);
  await postpone(em, due, reasons);
  const claimed = due.filter((_, i) => reasons[i] === null);
  // A mail that is tried again is counted already.
  await addToCounts(
    em,
    claimed.filter(({ isRetry }) => !isRetry),
  );
  const withheld = due.flatMap(({ teamId }, i) => {
    const reason = reasons[i];
    return reason ? [{ teamId, reason }] : [];
  });
  return { claimed, withheld };
}

type CountedDue = DueConfirmation & CountedMail;

const TODAY = sql`(now() at time zone 'UTC')::date`;

async function readDueConfirmations(em: EntityManager, batch: number): Promise<CountedDue[]> {
  const { rows } = await sql<CountedDue>`
    with due as materialized (
      select s.team_id, s.environment, s.list_id, s.subscriber_id, s.confirmation_due_at, p.email,
        ${isOfForm} as by_form,
        ${signUpMark} as sign_up, ${mailboxOf(sql`p.email`)} as mailbox, l.name as list_name,
        exists (select 1 from suppressions x
          where x.team_id = s.team_id and x.environment = s.environment and x.email = p.email
            -- It does not withhold the mail of a person who signed up again after it.
            and not (${isUnsubscribe("x")} and s.signed_up_again_at is not null)) as suppressed
      from subscriptions s
      join subscribers p on p.id = s.subscriber_id
      join lists l on l.id = s.list_id
      where s.confirmation_due_at <= clock_timestamp() and s.environment = 'LIVE'
        and (s.status = 'PENDING' or s.signed_up_again_at is not null)
      order by s.confirmation_due_at
      limit ${batch}
      for update of s skip locked
    ), by_team as (
      select d.team_id, d.environment, (select count(*)::int from confirmation_mails m
        where m.team_id = d.team_id and m.environment = d.environment and m.day = ${TODAY}) as sent
      from (select distinct team_id, environment from due) d
    )
    select d.team_id as "teamId", d.environment, d.list_id as "listId", d.subscriber_id as "subscriberId", d.email,
      ${claimedUntil(sql`coalesce(m.tried_at, clock_timestamp())`, CLAIM_MINUTES)}::text as "claimedUntil",
      not coalesce(${isRecent(sql`m.tried_at`)}, true) as "isLate", m.tried_at is not null as "isRetry",
      d.sign_up as "signUp", d.mailbox, d.suppressed as "isSuppressed", d.list_name as "listName",
      ${LOOK}, t.background_color as "backgroundColor",
      t.postal_address as "postalAddress", ${TODAY}::text as day, m.for_list as "sentForList", m.to_mailbox as "sentToMailbox", b.sent as "sentByTeam",
      d.by_form as "isByForm", case when d.by_form then (select count(*)::int from confirmation_mails f
        where f.mailbox = d.mailbox and f.by_form and f.day > ${TODAY} - ${ADDRESS_WINDOW_DAYS}::int) else 0 end as "sentByForms"
    from due d
    join teams t on t.id = d.team_id
    join by_team b on b.team_id = d.team_id and b.environment = d.environment
    cross join lateral (
      select (count(*) filter (where m.list_id = d.list_id and m.day = ${TODAY}))::int as for_list,
        count(*)::int as to_mailbox,
        min(m.tried_at) filter (where m.list_id = d.list_id and m.email = d.email and m.settled_at is null) as tried_at
      from confirmation_mails m
      where m.team_id = d.team_id and m.environment = d.environment and m.mailbox = d.mailbox
        and m.day > ${TODAY} - ${ADDRESS_WINDOW_DAYS}::int
    ) m
    order by d.confirmation_due_at, d.list_id, d.subscriber_id`.execute(kysely(em));
  return rows;
}

/** A withheld mail that stayed due would be read by every claim before the mails of other teams. */
async function postpone(
  em: EntityManager,
  due: readonly CountedDue[],
  reasons: readonly (WithheldReason | null)[],
): Promise<void> {
  if (due.length === 0) return;
  await sql`
    update subscriptions s
    set confirmation_due_at = case when d.reason is null then d.claimed_until
        when not d.is_dropped then (${TODAY} + 1)::timestamp at time zone 'UTC' end,
      confirmation_withheld = coalesce(d.reason,
        case when d.is_retry and s.confirmation_withheld = 'relay_failure' then s.confirmation_withheld end)
    from unnest(${due.map(({ listId }) => listId)}::text[], ${due.map(({ subscriberId }) => subscriberId)}::text[],
      ${due.map(({ claimedUntil }) => claimedUntil)}::timestamptz[], ${reasons}::text[],
      ${due.map(({ isRetry }) => isRetry)}::boolean[], ${due.map((mail, i) => isDropped(mail, reasons[i] ?? null))}::boolean[])
      as d (list_id, subscriber_id, claimed_until, reason, is_retry, is_dropped)
    where s.list_id = d.list_id and s.subscriber_id = d.subscriber_id`.execute(kysely(em));
}

async function addToCounts(em: EntityManager, claimed: readonly DueConfirmation[]): Promise<void> {
  if (claimed.length === 0) return;
  await kysely(em)
    .insertInto("confirmation_mails")
    .values(
      claimed.map(({ teamId, environment, mailbox, listId, day, email, isByForm }) => ({
        team_id: teamId,
        environment,
        mailbox,
        list_id: listId,
        day,
        email,
        by_form: isByForm,
      })),
    )
    .onConflict((conflict) => conflict.doNothing())
    .execute();
}

/** Counts the mails that wait for the next UTC day or for the relay, and those given up, by list and reason. */
export function countWithheld(em: EntityManager, tenant: Tenant) {
  return kysely(em)
    .selectFrom("subscriptions")
    .select(["list_id as listId", "confirmation_withheld as reason", sql<number>`count(*)::int`.as("mails")])
    .where(ofTenant(tenant))
    .where("confirmation_withheld", "is not", null)
    .groupBy(["list_id", "confirmation_withheld"])
    .orderBy("list_id")
    .orderBy("confirmation_withheld")
    .execute();
}

const isClaimed = ({ listId, subscriberId, claimedUntil, teamId, environment }: DueConfirmation) =>
  sql`${ofTenant({ teamId, environment }, "s")} and s.list_id = ${listId} and s.subscriber_id = ${subscriberId}
    and s.confirmation_due_at = ${claimedUntil}`;

/** Records that the relay did not take the mail. It stays due, and says why. */
export async function keepConfirmation(em: EntityManager, due: DueConfirmation): Promise<void> {
  await sql`
    update subscriptions s set confirmation_withheld = 'relay_failure' where ${isClaimed(due)}`.execute(kysely(em));
}

/**
 * Records the outcome. The mail stays due only if the subscriber's address has changed since the claim.
 * @param outcome `given_up`: the relay has not taken it for a day
 */
export async function settleConfirmation(
  em: EntityManager,
  due: DueConfirmation,
  outcome: "sent" | "refused" | "given_up",
): Promise<void> {
  await sql`
    with settled as (
      update confirmation_mails m set settled_at = now()
      where ${ofTenant(due, "m")} and m.mailbox = ${due.mailbox} and m.list_id = ${due.listId} and m.email = ${due.email}
        and m.settled_at is null
    )
    update subscriptions s
    set confirmation_due_at = null, confirmation_sent_at = ${outcome === "sent" ? sql`now()` : sql`null`},
      confirmation_withheld = ${outcome === "given_up" ? "relay_failure" : null}
    where ${isClaimed(due)}`.execute(kysely(em));
}
