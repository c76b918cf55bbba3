import { sql } from "kysely";
import { isoInstant } from "../../db/sql.ts";
import { consentOf, shownEmail } from "../../domain/webhooks/records.ts";
import { recordOf } from "../rest/record.ts";
import { subscriberWithSubscriptions } from "./schema.ts";

/** The subscriptions of a row of `subscribers`, oldest first. */
const subscriptionsOf = (row: string) => sql`coalesce((
  select json_agg(json_build_object(
    'list_id', s.list_id, 'status', s.status, 'confirmed_at', ${isoInstant(sql.ref("s.confirmed_at"))},
    'confirmation_sent_at', ${isoInstant(sql.ref("s.confirmation_sent_at"))},
    'confirmation_withheld', s.confirmation_withheld, 'unsubscribed_at', ${isoInstant(sql.ref("s.unsubscribed_at"))},
    'created_at', ${isoInstant(sql.ref("s.created_at"))}, 'updated_at', ${isoInstant(sql.ref("s.updated_at"))}
  ) order by s.created_at, s.list_id)
  from subscriptions s where s.subscriber_id = ${sql.ref(`${row}.id`)}), '[]')`;

/** Of a row of `subscribers`. */
export const wholeSubscriberRecord = recordOf(subscriberWithSubscriptions, (row) => ({
  email: shownEmail(row),
  tracking_consent: consentOf(row),
  subscriptions: subscriptionsOf(row),
}));
