import { sql } from "kysely";
import type { z } from "zod";
import type { MembershipOutcome } from "../../domain/audience/lists.ts";
import { shownEmail } from "../../domain/webhooks/records.ts";
import { recordOf } from "../rest/record.ts";
import { list, listSubscriber, type listSubscriberBatch } from "./schema.ts";

export const listRecord = recordOf(list);

/** Of a row of `subscriptions` with the subscriber's address and names. */
export const listSubscriberRecord = recordOf(listSubscriber, (row) => ({
  id: sql.ref(`${row}.subscriber_id`),
  email: shownEmail(row),
}));

export const presentBatch = (listId: string, outcome: MembershipOutcome): z.input<typeof listSubscriberBatch> => ({
  object: "list_subscriber_batch",
  list_id: listId,
  added: outcome.added,
  already_subscribed: outcome.alreadySubscribed,
  opted_out: outcome.optedOut,
});
