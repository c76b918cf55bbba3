import { z } from "zod";
import { OPTINS, SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { MAX_ID_LENGTH } from "../../domain/ids.ts";
import { confirmationFields, deleted, name, timestamp } from "../fields.ts";
import { idParam } from "../rest/route.ts";

const MAX_DESCRIPTION_LENGTH = 1_000;
/** Subscribers that one call may add to a list. */
export const MAX_BATCH = 1_000;

const description = z.string().max(MAX_DESCRIPTION_LENGTH).nullable();

export const listParams = z.strictObject({ listId: idParam });
export const membershipParams = z.strictObject({ listId: idParam, subscriberId: idParam });

export const listBody = z.strictObject({
  name,
  optin: z.enum(OPTINS).default("SINGLE"),
  description: description.default(null),
});

export const listPatch = z.strictObject({
  name: name.optional(),
  optin: z.enum(OPTINS).optional(),
  description: description.optional(),
});

export const membershipBody = z.strictObject({
  subscriber_ids: z.array(z.string().min(1).max(MAX_ID_LENGTH)).min(1).max(MAX_BATCH),
});

export const list = z.object({
  object: z.literal("list"),
  id: z.string(),
  name: z.string(),
  description: z.string().nullable(),
  optin: z.enum(OPTINS),
  created_at: timestamp,
  updated_at: timestamp,
});

export const deletedList = deleted("list");

/** A subscriber of a list. The id is the subscriber's, the timestamps are the subscription's. */
export const listSubscriber = z.object({
  object: z.literal("list_subscriber"),
  id: z.string(),
  list_id: z.string(),
  email: z.string(),
  first_name: z.string().nullable(),
  last_name: z.string().nullable(),
  status: z.enum(SUBSCRIPTION_STATUSES),
  confirmed_at: timestamp.nullable(),
  ...confirmationFields,
  unsubscribed_at: timestamp.nullable(),
  created_at: timestamp,
  updated_at: timestamp,
});

export const deletedListSubscriber = deleted("list_subscriber");

/** The outcome of adding subscribers; each id is in one of the three arrays. */
export const listSubscriberBatch = z.object({
  object: z.literal("list_subscriber_batch"),
  list_id: z.string(),
  added: z.array(z.string()),
  already_subscribed: z.array(z.string()),
  opted_out: z.array(z.string()),
});
