import type { AccountProvider, AccountStatus } from "../../db/entities/account.ts";
import type { SubscriptionStatus, WithheldReason } from "../../db/entities/audience.ts";
import type { EmailStatus, FieldValues } from "../../db/entities/contact.ts";
import type { BroadcastStatus, RecipientState } from "../../db/entities/send.ts";
import type { EVENTS, EventName } from "./catalogue.ts";

/** ISO 8601, UTC, milliseconds. */
type Instant = string;

interface Timestamps {
  created_at: Instant;
  updated_at: Instant;
}

interface Person {
  id: string;
  email: string;
  first_name: string | null;
  last_name: string | null;
}

/** A newsletter or a campaign. Without its body, which may be larger than receivers accept. */
interface Broadcast extends Timestamps {
  id: string;
  name: string;
  subject: string | null;
  from_name: string | null;
  status: BroadcastStatus;
  /** Why it is paused, as a code. */
  status_reason: string | null;
  send_id: string | null;
  /** Null before its send has ended. */
  recipients: ({ total: number } & { [State in Lowercase<RecipientState>]: number }) | null;
  /** ISO weekdays in the team's time zone; none means any day. */
  send_days: number[];
  send_at: Instant | null;
  started_at: Instant | null;
  completed_at: Instant | null;
}

/** The fields of each kind of record, in the spelling of the API and as the API shows them where it does. */
interface Fields {
  contact: Timestamps & Person & { fields: FieldValues; email_status: EmailStatus };
  subscriber: Timestamps & Person;
  /** Named by its two ids: it has none of its own. */
  subscription: Timestamps & {
    list_id: string;
    subscriber_id: string;
    email: string;
    status: SubscriptionStatus;
    confirmed_at: Instant | null;
    confirmation_sent_at: Instant | null;
    /** Why no confirmation mail is sent at present. */
    confirmation_withheld: WithheldReason | null;
    unsubscribed_at: Instant | null;
  };
  newsletter: Broadcast & { from_email: string | null; lists: string[] };
  campaign: Broadcast & {
    segment_id: string | null;
    account_ids: string[];
  };
  /** One mail to one recipient. */
  email: {
    /** The left part of its Message-ID. */
    id: string;
    newsletter_id: string | null;
    campaign_id: string | null;
    subscriber_id: string | null;
    contact_id: string | null;
    email: string;
    status: "SENT" | "REJECTED" | "BOUNCED" | "COMPLAINED";
    /** A code; never the server's text. */
    reason: string | null;
    attempts: number;
    updated_at: Instant;
  };
  /** An open or a click. */
  event: {
    id: string;
    kind: "open" | "click";
    email_id: string;
    newsletter_id: string | null;
    campaign_id: string | null;
    email: string;
    /** The author's address of the link; null for an open. */
    url: string | null;
    created_at: Instant;
  };
  suppression: Timestamps & { id: string; email: string; reason: string };
  unsubscribe: {
    id: string;
    email: string;
    reason: string;
    source: string;
    campaign_id: string | null;
    unsubscribed_at: Instant;
    created_at: Instant;
  };
  email_account: Timestamps & {
    id: string;
    email: string;
    display_name: string;
    provider: AccountProvider;
    status: AccountStatus;
    /** The code of the failure that led to ERROR or REVOKED; with another status null, or the last failure before it. */
    last_error: string | null;
    last_checked_at: Instant | null;
  };
}

export type ObjectType = keyof Fields;

export type EventObject<Type extends ObjectType = ObjectType> = { object: Type } & Fields[Type];

export type FieldsOf<Type extends ObjectType> = Fields[Type];

/** As it stood after the change; of something that is gone, as it stood before. */
export type EventObjects = { [Name in EventName]: EventObject<(typeof EVENTS)[Name]["objectType"]> };
