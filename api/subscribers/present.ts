import type { z } from "zod";
import type { Subscriber, Subscription } from "../../db/entities/audience.ts";
import { instant, instantOrNull } from "../rest/instant.ts";
import type { subscriber, subscriberWithSubscriptions } from "./schema.ts";

export const presentSubscriber = (person: Subscriber): z.input<typeof subscriber> => ({
  object: "subscriber",
  id: person.id,
  email: person.email,
  first_name: person.firstName ?? null,
  last_name: person.lastName ?? null,
  created_at: instant(person.createdAt),
  updated_at: instant(person.updatedAt),
});

export const presentWithSubscriptions = (
  person: Subscriber,
  subscriptions: Subscription[],
): z.input<typeof subscriberWithSubscriptions> => ({
  ...presentSubscriber(person),
  subscriptions: subscriptions.map(({ listId, status, confirmedAt, unsubscribedAt, createdAt, updatedAt }) => ({
    list_id: listId,
    status,
    confirmed_at: instantOrNull(confirmedAt),
    unsubscribed_at: instantOrNull(unsubscribedAt),
    created_at: instant(createdAt),
    updated_at: instant(updatedAt),
  })),
});
