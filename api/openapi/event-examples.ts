import type { z } from "zod";
import { CURRENT_API_VERSION } from "../../domain/api-version.ts";
import { exampleId } from "../../domain/ids.ts";
import { EVENTS, type EventName } from "../../domain/webhooks/catalogue.ts";
import { renderEvent } from "../../domain/webhooks/request.ts";
import { EVENT_OBJECTS } from "./event-objects.ts";
import { Schemas } from "./schemas.ts";

type Example<Name extends EventName> = z.infer<(typeof EVENT_OBJECTS)[(typeof EVENTS)[Name]["objectType"]]>;

interface EventPayload<Name extends EventName> {
  id: string;
  object: "event";
  type: Name;
  api_version: string;
  /** ISO 8601, UTC, milliseconds. */
  created_at: string;
  data: { object: Example<Name> };
}

const SEND_AT = "2026-11-21T17:00:00.000Z";
const EVENT_AT = "2026-11-21T17:00:04.250Z";

const SCHEDULED = { status: "SCHEDULED", send_id: exampleId("send"), send_at: SEND_AT } as const;
const STARTED = { ...SCHEDULED, status: "SENDING", started_at: SEND_AT } as const;
const PAUSED = { ...STARTED, status: "PAUSED" } as const;
const COMPLETED = {
  ...STARTED,
  ...({ status: "SENT", completed_at: EVENT_AT } as const),
  recipients: {
    ...{ total: 120, queued: 0, sending: 0, sent: 117, rejected: 2 },
    ...{ deferred: 0, unknown: 0, expired: 0, suppressed: 1, cancelled: 0 },
  },
} as const;
const CANCELLED = { ...STARTED, status: "CANCELLED", completed_at: EVENT_AT } as const;

/** Where the example of an event differs from that of its kind of record. */
const CHANGES: { [Name in EventName]?: Partial<Example<Name>> } = {
  "subscription.created": { status: "PENDING", confirmed_at: null },
  "subscription.removed": { status: "UNSUBSCRIBED", unsubscribed_at: EVENT_AT },
  "newsletter.scheduled": SCHEDULED,
  "newsletter.started": STARTED,
  "newsletter.paused": PAUSED,
  "newsletter.completed": COMPLETED,
  "newsletter.cancelled": CANCELLED,
  "campaign.scheduled": SCHEDULED,
  "campaign.started": STARTED,
  "campaign.paused": PAUSED,
  "campaign.completed": COMPLETED,
  "campaign.cancelled": CANCELLED,
  "sequence.completed": { state: "COMPLETED" },
  "sequence.left": { state: "LEFT", reason: "opted_out" },
  "email.rejected": { status: "REJECTED", reason: "mailbox_unknown:550_5.1.1" },
  "email.bounced": { status: "BOUNCED", reason: "bounce:hard" },
  "email.complained": { status: "COMPLAINED", reason: "complaint" },
  "event.tracked": { kind: "click", url: "https://example.com/november" },
  "suppression.added": { reason: "bounce:hard" },
  "account.recovered": { status: "ACTIVE", last_error: null },
};

export function exampleRecord<Name extends EventName>(type: Name): Example<Name> {
  const schemas = new Schemas();
  const record = schemas.exampleOf(schemas.convert(EVENT_OBJECTS[EVENTS[type].objectType], "output"));
  return Object.assign(record as Example<Name>, CHANGES[type]);
}

/** The body of a delivery, parsed. */
export const examplePayload = <Name extends EventName>(type: Name): EventPayload<Name> =>
  JSON.parse(
    renderEvent(CURRENT_API_VERSION, {
      ...{ eventId: exampleId("event"), type, eventCreatedAt: EVENT_AT },
      object: JSON.stringify(exampleRecord(type)),
    }),
  );
