import type { z } from "zod";
import type { List, SubscriptionStatus, WithheldReason } from "../../db/entities/audience.ts";
import { shownAddress } from "../../domain/address.ts";
import type { MembershipOutcome } from "../../domain/audience/lists.ts";
import { instant, instantOfText, instantOfTextOrNull } from "../rest/instant.ts";
import type { list, listSubscriber, listSubscriberBatch } from "./schema.ts";

export const presentList = ({ id, name, description, optin, createdAt, updatedAt }: List): z.input<typeof list> => ({
  object: "list",
  id,
  name,
  description: description ?? null,
  optin,
  created_at: instant(createdAt),
  updated_at: instant(updatedAt),
});

/** A row of `subscriptions` with its subscriber's address and names. */
interface ListSubscriberRow {
  subscriber_id: string;
  list_id: string;
  email: string;
  email_spelling: string | null;
  first_name: string | null;
  last_name: string | null;
  status: SubscriptionStatus;
  confirmed_at: string | null;
  confirmation_sent_at: string | null;
  confirmation_withheld: WithheldReason | null;
  unsubscribed_at: string | null;
  created_at: string;
  updated_at: string;
}

export const presentListSubscriber = (row: ListSubscriberRow): z.input<typeof listSubscriber> => ({
  object: "list_subscriber",
  id: row.subscriber_id,
  list_id: row.list_id,
  email: shownAddress({ email: row.email, emailSpelling: row.email_spelling }),
  first_name: row.first_name,
  last_name: row.last_name,
  status: row.status,
  confirmed_at: instantOfTextOrNull(row.confirmed_at),
  confirmation_sent_at: instantOfTextOrNull(row.confirmation_sent_at),
  confirmation_withheld: row.confirmation_withheld,
  unsubscribed_at: instantOfTextOrNull(row.unsubscribed_at),
  created_at: instantOfText(row.created_at),
  updated_at: instantOfText(row.updated_at),
});

export const presentBatch = (listId: string, outcome: MembershipOutcome): z.input<typeof listSubscriberBatch> => ({
  object: "list_subscriber_batch",
  list_id: listId,
  added: outcome.added,
  already_subscribed: outcome.alreadySubscribed,
  opted_out: outcome.optedOut,
});
