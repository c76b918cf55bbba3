import { z } from "zod";
import { SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { address, confirmationFields, personName, timestamp } from "../fields.ts";
import { idParam } from "../rest/route.ts";

export const subscriberParams = z.strictObject({ subscriberId: idParam });

export const subscriberBody = z.strictObject({
  email: address,
  first_name: personName.default(null),
  last_name: personName.default(null),
});

export const subscriberPatch = z.strictObject({
  email: address.optional(),
  first_name: personName.optional(),
  last_name: personName.optional(),
});

export const subscriber = z.object({
  object: z.literal("subscriber"),
  id: z.string(),
  email: z.string(),
  first_name: z.string().nullable(),
  last_name: z.string().nullable(),
  created_at: timestamp,
  updated_at: timestamp,
});

/** A subscriber with their subscriptions. */
export const subscriberWithSubscriptions = subscriber.extend({
  subscriptions: z.array(
    z.object({
      list_id: z.string(),
      status: z.enum(SUBSCRIPTION_STATUSES),
      confirmed_at: timestamp.nullable(),
      ...confirmationFields,
      unsubscribed_at: timestamp.nullable(),
      created_at: timestamp,
      updated_at: timestamp,
    }),
  ),
});
