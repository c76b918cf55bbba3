import type { EmailStatus, FieldValues } from "../../db/entities/contact.ts";
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

type Broadcast =
  | ("id" | "name" | "subject" | "from_name" | "status" | "status_reason" | "send_id" | "recipients" | "send_days")
  | ("send_at" | "started_at" | "completed_at" | keyof Timestamps);

/** The fields of a record that events alone show: `api/openapi/event-objects.ts` gives their types. */
type Named<Name extends string> = Record<Name, unknown>;

/** The fields of each kind of record, in the spelling of the API and as the API shows them where it does. */
interface Fields {
  contact: Timestamps & Person & { fields: FieldValues; email_status: EmailStatus };
  subscriber: Timestamps & Person;
  /** Named by its two ids: it has none of its own. */
  subscription: Named<
    | ("list_id" | "subscriber_id" | "email" | "status" | "unsubscribed_at" | keyof Timestamps)
    | ("confirmed_at" | "confirmation_sent_at" | "confirmation_withheld")
  >;
  newsletter: Named<Broadcast | "from_email" | "lists">;
  campaign: Named<Broadcast | "segment_id" | "account_ids">;
  /** A person in a sequence; named by the ids of the two. */
  sequence_enrolment: Named<
    "campaign_id" | "subscriber_id" | "contact_id" | "email" | "state" | "reason" | "entered_at"
  >;
  /** One mail to one recipient. */
  email: Named<
    | ("id" | "newsletter_id" | "campaign_id" | "subscriber_id" | "contact_id")
    | ("email" | "status" | "reason" | "attempts" | "updated_at")
  >;
  /** An open or a click. */
  event: Named<"id" | "kind" | "email_id" | "newsletter_id" | "campaign_id" | "email" | "url" | "created_at">;
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
  email_account: Named<
    "id" | "email" | "display_name" | "provider" | "status" | "last_error" | "last_checked_at" | keyof Timestamps
  >;
}

export type ObjectType = keyof Fields;

export type EventObject<Type extends ObjectType = ObjectType> = { object: Type } & Fields[Type];

export type FieldsOf<Type extends ObjectType> = Fields[Type];

/** As it stood after the change; of something that is gone, as it stood before. */
export type EventObjects = { [Name in EventName]: EventObject<(typeof EVENTS)[Name]["objectType"]> };
