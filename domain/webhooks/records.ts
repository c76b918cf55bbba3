import { type RawBuilder, sql } from "kysely";
import { instants, type JsonColumns, jsonRecord, plain } from "../../db/json.ts";
import { isoInstant } from "../../db/sql.ts";
import { countsRecord } from "../sends/ledger/counts.ts";
import type { SendResource } from "../sends/resource.ts";
import type { EventObject, ObjectType } from "./objects.ts";

// The records of events, made in SQL: without a subscribed endpoint none is made, and none passes through Node. Each function takes the
// alias under which the row of the record's table stands in the statement.

const record = <Type extends ObjectType>(
  object: Type,
  fields: JsonColumns<Exclude<keyof EventObject<Type>, "object">>,
): RawBuilder<EventObject<Type>> => jsonRecord<EventObject<Type>>(object, fields);

const nothing = sql`null`;

/** The address as the client wrote it. */
export const shownEmail = (row: string) =>
  sql<string>`coalesce(${sql.ref(`${row}.email_spelling`)}, ${sql.ref(`${row}.email`)})`;

/** The last answer of the person at the row's address about tracking; null before the first. */
export const consentOf = (row: string): RawBuilder<unknown> => sql`(
  select json_build_object('status', lower(k.status), 'at', ${isoInstant(sql.ref("k.at"))}, 'way', lower(k.way), 'words', k.words)
  from tracking_consents k where k.team_id = ${sql.ref(`${row}.team_id`)}
    and k.environment = ${sql.ref(`${row}.environment`)} and k.email = ${sql.ref(`${row}.email`)})`;

export const subscriberRecord = (row: string): RawBuilder<EventObject<"subscriber">> =>
  record("subscriber", {
    ...plain(row, "id"),
    email: shownEmail(row),
    ...plain(row, "first_name", "last_name"),
    ...instants(row, "created_at", "updated_at"),
    tracking_consent: consentOf(row),
  });

export const contactRecord = (row: string): RawBuilder<EventObject<"contact">> =>
  record("contact", {
    ...plain(row, "id"),
    email: shownEmail(row),
    ...plain(row, "first_name", "last_name"),
    ...instants(row, "created_at", "updated_at"),
    tracking_consent: consentOf(row),
    ...plain(row, "fields", "email_status"),
  });

export const subscriptionRecord = (row: string): RawBuilder<EventObject<"subscription">> =>
  record("subscription", {
    ...plain(row, "list_id", "subscriber_id"),
    email: sql`(select ${shownEmail("person")} from subscribers person where person.id = ${sql.ref(`${row}.subscriber_id`)})`,
    ...plain(row, "status", "confirmation_withheld"),
    ...instants(row, "confirmed_at", "confirmation_sent_at", "unsubscribed_at", "created_at", "updated_at"),
  });

export const suppressionRecord = (row: string): RawBuilder<EventObject<"suppression">> =>
  record("suppression", {
    ...plain(row, "id"),
    email: shownEmail(row),
    ...plain(row, "reason"),
    ...instants(row, "created_at", "updated_at"),
  });

export const unsubscribeRecord = (row: string): RawBuilder<EventObject<"unsubscribe">> =>
  record("unsubscribe", {
    ...plain(row, "id"),
    email: shownEmail(row),
    ...plain(row, "reason", "source", "campaign_id"),
    ...instants(row, "unsubscribed_at"),
    created_at: isoInstant(sql.ref(`${row}.unsubscribed_at`)),
  });

/** The recipients by state of a newsletter or campaign whose send has ended; null before. Mails of a cancelled one may be in flight. */
const finalCounts = (row: string): RawBuilder<unknown> =>
  sql`case when ${sql.ref(`${row}.status`)} in ('SENT', 'FAILED') then ${countsRecord(sql.ref(`${row}.send_id`))} end`;

const newsletterRecord = (row: string): RawBuilder<EventObject<"newsletter">> =>
  record("newsletter", {
    ...plain(row, "id", "name", "subject", "from_email", "from_name", "status", "status_reason", "send_id"),
    recipients: finalCounts(row),
    lists: sql`array(select list_id from newsletter_lists where newsletter_id = ${sql.ref(`${row}.id`)} order by list_id)`,
    send_days: sql`${sql.ref(`${row}.send_days`)}::int[]`,
    ...instants(row, "send_at", "started_at", "completed_at", "created_at", "updated_at"),
  });

export const newsletterRow = (id: string) => ({
  record: newsletterRecord("n"),
  from: sql`newsletters n where n.id = ${id}`,
});

const campaignRecord = (row: string): RawBuilder<EventObject<"campaign">> =>
  record("campaign", {
    ...plain(row, "id", "name", "subject", "from_name", "status", "status_reason", "send_id"),
    ...plain(row, "segment_id", "account_ids"),
    recipients: finalCounts(row),
    send_days: sql`${sql.ref(`${row}.send_days`)}::int[]`,
    ...instants(row, "send_at", "started_at", "completed_at", "created_at", "updated_at"),
  });

export const campaignRow = (id: string) => ({
  record: campaignRecord("c"),
  from: sql`campaigns c where c.id = ${id}`,
});

/** Of a row with the columns of an enrolment, its person's address and their id as a subscriber or contact. */
export const enrolmentRecord = (row: string): RawBuilder<EventObject<"sequence_enrolment">> =>
  record("sequence_enrolment", {
    ...plain(row, "campaign_id", "subscriber_id", "contact_id"),
    email: shownEmail(row),
    ...plain(row, "state", "reason"),
    ...instants(row, "entered_at"),
  });

/** A wave of a list's sequence mails subscribers, whose rows name the list. */
const personFields = (row: string, { type }: SendResource) => {
  const [memberId, listId] = [sql.ref(`${row}.member_id`), sql.ref(`${row}.list_id`)];
  if (type === "newsletter") return { subscriber_id: memberId, contact_id: nothing };
  const memberIf = (holds: RawBuilder<unknown>) => sql`case when ${holds} then ${memberId} end`;
  return { subscriber_id: memberIf(sql`${listId} is not null`), contact_id: memberIf(sql`${listId} is null`) };
};

/** Of a row of `send_recipients`, or of its columns that are used here. */
export const emailFields = (
  row: string,
  { sendId, resource }: { sendId: string; resource: SendResource },
  status: RawBuilder<unknown>,
) => ({
  id: sql`${sql.ref(`${row}.seq`)} || ${`.${sendId}`}`,
  newsletter_id: resource.type === "newsletter" ? sql`${resource.id}::text` : nothing,
  campaign_id: resource.type === "campaign" ? sql`${resource.id}::text` : nothing,
  ...personFields(row, resource),
  email: shownEmail(row),
  status,
  ...plain(row, "reason", "attempts"),
  ...instants(row, "updated_at"),
});

export const emailRecord = (...row: Parameters<typeof emailFields>): RawBuilder<EventObject<"email">> =>
  record("email", emailFields(...row));

/** Of a row with the columns of a counted hit, its mail and its send: see `settleHits`. */
export const trackedRecord = (row: string): RawBuilder<EventObject<"event">> => {
  const resourceOf = (type: string) =>
    sql`case when ${sql.ref(`${row}.resource_type`)} = ${sql.lit(type)} then ${sql.ref(`${row}.resource_id`)} end`;
  return record("event", {
    ...plain(row, "id"),
    kind: sql`case ${sql.ref(`${row}.kind`)} when 'opened' then 'open' else 'click' end`,
    email_id: sql`${sql.ref(`${row}.seq`)} || '.' || ${sql.ref(`${row}.send_id`)}`,
    newsletter_id: resourceOf("newsletter"),
    campaign_id: resourceOf("campaign"),
    email: shownEmail(row),
    ...plain(row, "url", "by"),
    created_at: isoInstant(sql.ref(`${row}.at`)),
  });
};

export const accountRecord = (row: string): RawBuilder<EventObject<"email_account">> =>
  record("email_account", {
    ...plain(row, "id", "email", "display_name", "provider", "status", "last_error"),
    ...instants(row, "last_checked_at", "created_at", "updated_at"),
  });
