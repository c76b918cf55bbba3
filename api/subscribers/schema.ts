import { z } from "zod";
import { SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { confirmationFields, deleted, idOf, timestamp, timestampOrNull, timestamps } from "../fields.ts";
import { personBody, personPatch, shownPerson } from "../people.ts";
import { idParamOf } from "../rest/route.ts";

export const subscriberParams = z.strictObject({ subscriberId: idParamOf("subscriber", "The id of the subscriber.") });

export const subscriberBody = z.strictObject(personBody);

export const subscriberPatch = z.strictObject(personPatch);

export const subscriber = z
  .object({
    object: z.literal("subscriber"),
    id: idOf("subscriber"),
    ...shownPerson,
  })
  .meta({ id: "Subscriber", description: "A person with an email address." });

export const deletedSubscriber = deleted("subscriber", "subscriber", "DeletedSubscriber");

export const subscriberWithSubscriptions = subscriber
  .extend({
    subscriptions: z.array(
      z
        .object({
          list_id: idOf("list", "The id of the list."),
          status: z
            .enum(SUBSCRIPTION_STATUSES)
            .meta({ description: "Only `CONFIRMED` subscriptions get mails.", examples: ["CONFIRMED"] }),
          confirmed_at: timestamp.nullable().describe("When the subscription became `CONFIRMED`."),
          ...confirmationFields,
          unsubscribed_at: timestampOrNull("When the subscriber opted out of the list."),
          ...timestamps,
        })
        .meta({ id: "Subscription", description: "The place of a subscriber on one list." }),
    ),
  })
  .meta({ id: "SubscriberWithSubscriptions", description: "A subscriber with the subscriptions to all lists." });
