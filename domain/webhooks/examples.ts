import { CURRENT_API_VERSION } from "../api-version.ts";
import { ID_PREFIX } from "../ids.ts";
import type { EventName } from "./catalogue.ts";
import type { EventObject, EventObjects, FieldsOf, ObjectType } from "./objects.ts";
import { renderEvent } from "./payload.ts";

export interface EventPayload<Name extends EventName = EventName> {
  id: string;
  object: "event";
  type: Name;
  api_version: string;
  /** ISO 8601, UTC, milliseconds. */
  created_at: string;
  data: { object: EventObjects[Name] };
}

const EVENT_ID = "evt_01m80rgrxve01bm0nmbwy01ke5";
const LIST_ID = "list_01m80rgrxwe01bm0nw5dxkv1wh";
const SUBSCRIBER_ID = "sub_01m80rgrxxe01bm0p37q161zze";
const NEWSLETTER_ID = "nl_01m80rgrxxe01bm0pde9yzz1nd";
const CAMPAIGN_ID = `${ID_PREFIX.campaign}_01m80rgrxye01bm0qrre3f0dvg`;
const ACCOUNT_ID = "acct_01m80rgrxxe01bm0q669mfbndg";
const SEND_ID = "send_01m80rgrxxe01bm0qfrxakx5bq";
const EMAIL_ID = `1.${SEND_ID}`;
/** A domain that is reserved for documentation (RFC 2606). */
const ADDRESS = "ada@example.com";
const SENDER = "news@example.com";

const CREATED_AT = "2026-11-20T09:15:00.000Z";
const SEND_AT = "2026-11-21T17:00:00.000Z";
const EVENT_AT = "2026-11-21T17:00:04.250Z";
const TIMES = { created_at: CREATED_AT, updated_at: EVENT_AT };

/** Makes the examples of a record: with these fields, but for those that an event changes. */
const example =
  <Type extends ObjectType>(object: Type, fields: FieldsOf<Type>) =>
  (changes: Partial<FieldsOf<Type>> = {}): EventObject<Type> => ({ object, ...fields, ...changes });

const person = { email: ADDRESS, first_name: "Ada", last_name: "Lovelace", ...TIMES };
const contact = example("contact", {
  id: "con_01m80rgrxye01bm0qjde22ncwg",
  ...person,
  fields: { city: "London", member_since: "2026-01-31" },
  email_status: "ACTIVE",
});
const subscriber = example("subscriber", { id: SUBSCRIBER_ID, ...person });
const subscription = example("subscription", {
  list_id: LIST_ID,
  subscriber_id: SUBSCRIBER_ID,
  email: ADDRESS,
  status: "CONFIRMED",
  confirmed_at: EVENT_AT,
  confirmation_sent_at: CREATED_AT,
  confirmation_withheld: null,
  unsubscribed_at: null,
  ...TIMES,
});
const broadcast = {
  name: "November news",
  subject: "What is new in November",
  from_name: "Example News",
  status: "SENDING",
  status_reason: null,
  send_id: SEND_ID,
  recipients: null,
  send_days: [1, 2, 3, 4, 5, 6, 7],
  send_at: SEND_AT,
  started_at: EVENT_AT,
  completed_at: null,
  ...TIMES,
} as const satisfies Partial<FieldsOf<"newsletter"> & FieldsOf<"campaign">>;
const newsletter = example("newsletter", { ...broadcast, id: NEWSLETTER_ID, from_email: SENDER, lists: [LIST_ID] });
const campaign = example("campaign", {
  ...broadcast,
  id: CAMPAIGN_ID,
  segment_id: "seg_01m80rgrxye01bm0qp0c5x6d1j",
  account_ids: [ACCOUNT_ID],
});
const email = example("email", {
  id: EMAIL_ID,
  newsletter_id: NEWSLETTER_ID,
  campaign_id: null,
  subscriber_id: SUBSCRIBER_ID,
  contact_id: null,
  email: ADDRESS,
  status: "SENT",
  reason: null,
  attempts: 1,
  updated_at: EVENT_AT,
});
const suppression = example("suppression", {
  id: "supp_01m80rgrxxe01bm0ppd21rv46z",
  email: ADDRESS,
  reason: "bounce:hard",
  created_at: EVENT_AT,
  updated_at: EVENT_AT,
});
const account = example("email_account", {
  id: ACCOUNT_ID,
  email: SENDER,
  display_name: "Example News",
  provider: "SMTP_OTHER",
  status: "ACTIVE",
  last_error: null,
  last_checked_at: EVENT_AT,
  ...TIMES,
});

const SENT = {
  status: "SENT",
  recipients: {
    ...{ total: 120, queued: 0, sending: 0, sent: 117, rejected: 2 },
    ...{ deferred: 0, unknown: 0, expired: 0, suppressed: 1, cancelled: 0 },
  },
  completed_at: EVENT_AT,
  started_at: SEND_AT,
} as const;
const SCHEDULED = { status: "SCHEDULED", started_at: null } as const;
const PAUSED = { status: "PAUSED" } as const;
const CANCELLED = { status: "CANCELLED", completed_at: EVENT_AT, started_at: SEND_AT } as const;

const EXAMPLES: EventObjects = {
  "contact.created": contact(),
  "contact.updated": contact(),
  "contact.deleted": contact(),
  "subscriber.created": subscriber(),
  "subscriber.updated": subscriber(),
  "subscriber.deleted": subscriber(),
  "subscription.created": subscription({ status: "PENDING", confirmed_at: null, confirmation_sent_at: null }),
  "subscription.confirmed": subscription(),
  "subscription.removed": subscription({ status: "UNSUBSCRIBED", confirmed_at: CREATED_AT, unsubscribed_at: EVENT_AT }),
  "newsletter.scheduled": newsletter(SCHEDULED),
  "newsletter.started": newsletter(),
  "newsletter.paused": newsletter(PAUSED),
  "newsletter.completed": newsletter(SENT),
  "newsletter.cancelled": newsletter(CANCELLED),
  "campaign.scheduled": campaign(SCHEDULED),
  "campaign.started": campaign(),
  "campaign.paused": campaign(PAUSED),
  "campaign.completed": campaign(SENT),
  "campaign.cancelled": campaign(CANCELLED),
  "email.sent": email(),
  "email.rejected": email({ status: "REJECTED", reason: "mailbox_unknown:550_5.1.1" }),
  "email.bounced": email({ status: "BOUNCED", reason: "bounce:hard" }),
  "email.complained": email({ status: "COMPLAINED", reason: "complaint" }),
  "event.tracked": {
    object: "event",
    id: `${ID_PREFIX.tracking}_01m80rgrxye01bm0r4r2abe4g6`,
    kind: "click",
    email_id: EMAIL_ID,
    newsletter_id: NEWSLETTER_ID,
    campaign_id: null,
    email: ADDRESS,
    url: "https://example.com/november",
    created_at: EVENT_AT,
  },
  "suppression.added": suppression(),
  "suppression.removed": suppression(),
  "unsubscribe.created": {
    object: "unsubscribe",
    id: "unsub_01m80rgrxxe01bm0ptj28cgp0j",
    email: ADDRESS,
    reason: "UNSUBSCRIBED",
    source: "one_click",
    campaign_id: NEWSLETTER_ID,
    unsubscribed_at: EVENT_AT,
    created_at: EVENT_AT,
  },
  "account.error": account({ status: "ERROR", last_error: "login_refused" }),
  "account.recovered": account(),
};

export const exampleRecord = <Name extends EventName>(type: Name): EventObjects[Name] => EXAMPLES[type];

/** What a receiver gets as the body of a delivery, parsed. */
export function examplePayload<Name extends EventName>(
  type: Name,
  apiVersion = CURRENT_API_VERSION,
): EventPayload<Name> {
  const facts = { eventId: EVENT_ID, type, eventCreatedAt: EVENT_AT, object: JSON.stringify(exampleRecord(type)) };
  return JSON.parse(renderEvent(apiVersion, facts));
}
