import { type RawBuilder, sql } from "kysely";
import { type EntityManager, kysely } from "../../db/orm.ts";

/** The service's own mails, as metrics name them. */
type SystemMailKind = "confirmation" | "notice" | "invite" | "sign_in_link";

/** What the relay has refused for that long is given up. */
const GIVEN_UP_HOURS = 24;
const LONGEST_CLAIM_MINUTES = 60;

/**
 * SQL: until when a claim of a mail holds, which is also when the mail is tried again: after as long as it has been tried,
 * at least `minutes`, at most an hour. It ends within the first second of a minute, so that mails that wait are tried
 * together; the part of that second is the claim's own.
 * @param since when it was first tried
 */
export const claimedUntil = (since: RawBuilder<unknown>, minutes: number) => sql`date_trunc('milliseconds',
  date_trunc('minute', clock_timestamp() + least(make_interval(mins => ${LONGEST_CLAIM_MINUTES}),
    greatest(make_interval(mins => ${minutes}), clock_timestamp() - (${since}))))
  + interval '1 minute' + (clock_timestamp() - date_trunc('second', clock_timestamp())))`;

/** SQL: a mail that was first tried, or made due, at that time is not given up yet. */
export const isRecent = (since: RawBuilder<unknown>) =>
  sql<boolean>`(${since}) > clock_timestamp() - make_interval(hours => ${GIVEN_UP_HOURS})`;

/**
 * SQL: one spelling of the mailbox of a normalised address, for limits: without the `+tag` of the local part, and at Gmail
 * without the dots, under the first of its two domains.
 */
export const mailboxOf = (email: RawBuilder<unknown>) => sql<string>`case when ${email} ~ '@(gmail|googlemail)[.]com$'
  then replace(regexp_replace(${email}, '([+].*)?@.*', ''), '.', '') || '@gmail.com'
  else regexp_replace(${email}, '[+][^@]*@', '@') end`;

/** For how long the mail of each kind that has waited longest for the relay could not be handed over; 0 without one. */
export async function readWaitSeconds(em: EntityManager): Promise<Record<SystemMailKind, number>> {
  const { rows } = await sql<Record<SystemMailKind, number>>`
    select coalesce(extract(epoch from now() - confirmation), 0)::float8 as confirmation,
      coalesce(extract(epoch from now() - notice), 0)::float8 as notice,
      coalesce(extract(epoch from now() - invite), 0)::float8 as invite,
      coalesce(extract(epoch from now() - sign_in_link), 0)::float8 as sign_in_link
    from (select min(m.tried_at) as confirmation from subscriptions s
        join subscribers p on p.id = s.subscriber_id
        join confirmation_mails m on m.team_id = s.team_id and m.environment = s.environment and m.list_id = s.list_id
          and m.mailbox = ${mailboxOf(sql`p.email`)} and m.settled_at is null
        where s.confirmation_due_at is not null and s.confirmation_withheld = 'relay_failure') s,
      (select min(disabled_at) as notice from webhook_endpoints
        where notice_due_at is not null and ${isRecent(sql`disabled_at`)}) w,
      (select min(created_at) as invite from members
        where invite_due_at is not null and removed_at is null and ${isRecent(sql`created_at`)}) i,
      (select min(created_at) as sign_in_link from sign_in_links
        where mail_due_at is not null and used_at is null and expires_at > clock_timestamp()) l`.execute(kysely(em));
  const [seconds] = rows;
  if (!seconds) throw new Error("an aggregate without a row");
  return seconds;
}
