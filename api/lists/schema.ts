import { z } from "zod";
import { OPTINS, SUBSCRIPTION_STATUSES, type SubscriptionStatus } from "../../db/entities/audience.ts";
import { exampleId, MAX_ID_LENGTH } from "../../domain/ids.ts";
import {
  confirmationFields,
  deleted,
  idOf,
  name,
  shownAddress,
  shownNames,
  textOrNull,
  timestamp,
  timestampOrNull,
  timestamps,
} from "../fields.ts";
import { idParamOf } from "../rest/route.ts";

const MAX_DESCRIPTION_LENGTH = 1_000;
export const MAX_BATCH = 1_000;

const description = z
  .string()
  .max(MAX_DESCRIPTION_LENGTH)
  .nullable()
  .meta({ description: "A note for the team.", examples: ["Customers who asked for news"] });
const optin = z.enum(OPTINS).meta({
  description:
    "`SINGLE`: a subscription starts `CONFIRMED`. `DOUBLE`: it starts `PENDING` until the subscriber confirms.",
  examples: ["DOUBLE"],
});
const status = z.enum(SUBSCRIPTION_STATUSES).meta({
  description: "Only `CONFIRMED` subscriptions get mails.",
  examples: ["CONFIRMED"],
});

const listId = idParamOf("list", "The id of the list.");

export const listParams = z.strictObject({ listId });
export const membershipParams = z.strictObject({
  listId,
  subscriberId: idParamOf("subscriber", "The id of the subscriber."),
});

export const listBody = z.strictObject({
  name,
  optin: optin.default("SINGLE"),
  description: description.default(null),
});

export const listPatch = z.strictObject({ name, optin, description }).partial();

export const membershipBody = z.strictObject({
  subscriber_ids: z
    .array(z.string().min(1).max(MAX_ID_LENGTH))
    .min(1)
    .max(MAX_BATCH)
    .meta({ description: "Ids of subscribers.", examples: [[exampleId("subscriber")]] }),
});

/** Only the person lifts an opt-out, by a confirmation. */
export const membershipPatch = z.strictObject({
  status: z
    .literal("UNSUBSCRIBED" satisfies SubscriptionStatus)
    .meta({ description: "Opts the subscriber out of the list.", examples: ["UNSUBSCRIBED"] }),
});

export const list = z
  .object({
    object: z.literal("list"),
    id: idOf("list"),
    name: z.string().meta({ examples: ["Customers"] }),
    description: textOrNull("A note for the team.", "Customers who asked for news"),
    optin,
    ...timestamps,
  })
  // Not `List`, which generated code in Python and Kotlin takes for the type of its language.
  .meta({ id: "MailingList", description: "A list of subscribers." });

export const deletedList = deleted("list", "list", "DeletedList");

/** A subscriber of a list. The id is the subscriber's, the timestamps are the subscription's. */
export const listSubscriber = z
  .object({
    object: z.literal("list_subscriber"),
    id: idOf("subscriber", "The id of the subscriber."),
    list_id: idOf("list", "The id of the list."),
    email: shownAddress,
    ...shownNames,
    status,
    confirmed_at: timestamp.nullable().describe("When the subscription became `CONFIRMED`."),
    ...confirmationFields,
    unsubscribed_at: timestampOrNull("When the subscriber opted out of the list."),
    created_at: timestamp.describe("When the subscription was created."),
    updated_at: timestamp.describe("When the subscription was last changed."),
  })
  .meta({ id: "ListSubscriber", description: "A subscriber of a list with the subscription to it." });

export const deletedListSubscriber = deleted("list_subscriber", "subscriber", "DeletedListSubscriber");

/** The outcome of adding subscribers; each id is in one of the three arrays. */
export const listSubscriberBatch = z
  .object({
    object: z.literal("list_subscriber_batch"),
    list_id: idOf("list", "The id of the list."),
    added: z.array(z.string()).meta({
      description: "Ids of subscribers whose subscription was created.",
      examples: [[exampleId("subscriber")]],
    }),
    already_subscribed: z
      .array(z.string())
      .meta({ description: "Ids of subscribers who were on the list already.", examples: [[]] }),
    opted_out: z.array(z.string()).meta({
      description: "Ids of subscribers who opted out of the list; they stay off it until they confirm.",
      examples: [[]],
    }),
  })
  .meta({ id: "ListSubscriberBatch", description: "The outcome of adding subscribers to a list." });
