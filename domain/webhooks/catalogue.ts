export interface EventType<ObjectType extends string = string> {
  description: string;
  /** The `object` of the record in the payload's `data`. */
  objectType: ObjectType;
  /** Carries a person's address: subscribing takes a scope that reads people. */
  contactData: boolean;
}

const event = <ObjectType extends string>(
  objectType: ObjectType,
  description: string,
  contactData = false,
): EventType<ObjectType> => ({ description, objectType, contactData });
const personal = <ObjectType extends string>(objectType: ObjectType, description: string): EventType<ObjectType> =>
  event(objectType, description, true);

/** Every event a client can subscribe to. A name is never changed or reused; `*` means the names at the time of the request. */
export const EVENTS = {
  "contact.created": personal("contact", "A contact was added."),
  "contact.updated": personal("contact", "A contact was changed."),
  "contact.deleted": personal("contact", "A contact was deleted."),
  "subscriber.created": personal("subscriber", "A subscriber was added."),
  "subscriber.updated": personal("subscriber", "A subscriber's address or name was changed."),
  "subscriber.deleted": personal("subscriber", "A subscriber was deleted."),
  "subscription.created": personal("subscription", "A subscriber was put on a list."),
  "subscription.confirmed": personal("subscription", "A subscriber confirmed a double opt-in, or undid an opt-out."),
  "subscription.removed": personal("subscription", "A subscriber was taken off a list, or opted out of it."),
  "newsletter.scheduled": event("newsletter", "A newsletter was confirmed and waits for its time."),
  "newsletter.started": event("newsletter", "A newsletter's first emails are sent."),
  "newsletter.paused": event("newsletter", "A newsletter's send was paused."),
  "newsletter.completed": event("newsletter", "A newsletter's send has ended."),
  "newsletter.cancelled": event("newsletter", "A newsletter's send was cancelled."),
  "campaign.scheduled": event("campaign", "A campaign was confirmed and waits for its time."),
  "campaign.started": event("campaign", "A campaign's first emails are sent."),
  "campaign.paused": event("campaign", "A campaign's send was paused."),
  "campaign.completed": event("campaign", "A campaign's send has ended."),
  "campaign.cancelled": event("campaign", "A campaign's send was cancelled."),
  "sequence.entered": personal("sequence_enrolment", "A person entered a sequence."),
  "sequence.completed": personal("sequence_enrolment", "A person has passed the last step of a sequence."),
  "sequence.left": personal(
    "sequence_enrolment",
    "A person left a sequence before its end: a condition of a step ended it, or they may not be mailed any more.",
  ),
  "email.sent": personal("email", "A mail was accepted by the sending account's server."),
  "email.rejected": personal(
    "email",
    "A mail was refused for good by the sending account's server, or dropped by its provider.",
  ),
  "email.bounced": personal("email", "A mail came back after it had been accepted."),
  "email.complained": personal("email", "A recipient reported a mail as spam."),
  "event.tracked": personal("event", "A recipient opened a mail or followed a link in it."),
  "suppression.added": personal(
    "suppression",
    "An address was put on the do-not-mail list, other than through the API.",
  ),
  "suppression.removed": personal("suppression", "A suppression was lifted."),
  "unsubscribe.created": personal("unsubscribe", "A recipient unsubscribed."),
  "account.error": event("email_account", "A sending account cannot be used."),
  "account.recovered": event("email_account", "A sending account works again."),
} as const satisfies Record<string, EventType>;

export type EventName = keyof typeof EVENTS;

export const EVENT_NAMES = Object.keys(EVENTS) as EventName[];

export const isEventName = (name: string): name is EventName => Object.hasOwn(EVENTS, name);
