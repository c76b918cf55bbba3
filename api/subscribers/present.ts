import type { z } from "zod";
import type { Subscriber, Subscription } from "../../db/entities/audience.ts";
import { presentPerson } from "../people.ts";
import { instant, instantOrNull } from "../rest/instant.ts";
import type { subscriber, subscriberWithSubscriptions } from "./schema.ts";

export const presentSubscriber = (person: Subscriber): z.input<typeof subscriber> => ({
  object: "subscriber",
  ...presentPerson(person),
});

export const presentWithSubscriptions = (
  person: Subscriber,
  subscriptions: Subscription[],
): z.input<typeof subscriberWithSubscriptions> => ({
  ...presentSubscriber(person),
  subscriptions: subscriptions.map((subscription) => ({
    list_id: subscription.listId,
    status: subscription.status,
    confirmed_at: instantOrNull(subscription.confirmedAt),
    confirmation_sent_at: instantOrNull(subscription.confirmationSentAt),
    confirmation_withheld: subscription.confirmationWithheld ?? null,
    unsubscribed_at: instantOrNull(subscription.unsubscribedAt),
    created_at: instant(subscription.createdAt),
    updated_at: instant(subscription.updatedAt),
  })),
});
