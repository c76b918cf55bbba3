import type { ConsentStatus, ConsentWay } from "../../db/entities/audience.ts";
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
  tracking_consent: {
    status: Lowercase<ConsentStatus>;
    at: Instant;
    way: Lowercase<ConsentWay>;
    words: string | null;
  } | null;
}

/** Of the records that routes make too: as the API shows them. Those of the others are the columns in `records.ts`. */
interface Fields {
  contact: Timestamps & Person & { fields: FieldValues; email_status: EmailStatus };
  subscriber: Timestamps & Person;
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
}

export type ObjectType = (typeof EVENTS)[EventName]["objectType"];

export type EventObject<Type extends ObjectType = ObjectType> = { object: Type } & (Type extends keyof Fields
  ? Fields[Type]
  : unknown);

/** As it stood after the change; of something that is gone, as it stood before. */
export type EventObjects = { [Name in EventName]: EventObject<(typeof EVENTS)[Name]["objectType"]> };
