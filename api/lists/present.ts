import { sql } from "kysely";
import type { z } from "zod";
import { instants, jsonRecord, plain } from "../../db/json.ts";
import type { MembershipOutcome } from "../../domain/audience/lists.ts";
import { shownEmail } from "../../domain/webhooks/records.ts";
import type { list, listSubscriber, listSubscriberBatch } from "./schema.ts";

/** SQL: a list, of a row of `lists`. */
export const listRecord = (row: string) =>
  jsonRecord<z.input<typeof list>>("list", {
    ...plain(row, "id", "name", "description", "optin"),
    ...instants(row, "created_at", "updated_at"),
  });

/** SQL: a subscriber of a list, of a row of `subscriptions` with the subscriber's address and names. */
export const listSubscriberRecord = (row: string) =>
  jsonRecord<z.input<typeof listSubscriber>>("list_subscriber", {
    id: sql.ref(`${row}.subscriber_id`),
    ...plain(row, "list_id"),
    email: shownEmail(row),
    ...plain(row, "first_name", "last_name", "status"),
    ...instants(row, "confirmed_at", "confirmation_sent_at"),
    ...plain(row, "confirmation_withheld"),
    ...instants(row, "unsubscribed_at", "created_at", "updated_at"),
  });

export const presentBatch = (listId: string, outcome: MembershipOutcome): z.input<typeof listSubscriberBatch> => ({
  object: "list_subscriber_batch",
  list_id: listId,
  added: outcome.added,
  already_subscribed: outcome.alreadySubscribed,
  opted_out: outcome.optedOut,
});
