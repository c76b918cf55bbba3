import type { Scope } from "../access/scopes.ts";
import { EVENT_NAMES, EVENTS, type EventName, isEventName } from "./catalogue.ts";

/** Stands for every event of the catalogue at the time of the request. */
const EVERYTHING = "*";

/** A key with any one of these scopes may subscribe to events that carry people's addresses. */
export const CONTACT_SCOPES = ["contacts:read", "suppressions:read"] as const satisfies readonly Scope[];

export const CONTACT_EVENTS: readonly EventName[] = EVENT_NAMES.filter((name) => EVENTS[name].contactData);

const contactEvents: ReadonlySet<string> = new Set(CONTACT_EVENTS);
export const carriesContactData = (events: readonly string[]): boolean =>
  events.some((name) => contactEvents.has(name));

/** An error in a requested event; `index` is its place in the list. */
export interface EventProblem {
  index: number;
  message: string;
}

export function eventProblems(names: readonly string[]): EventProblem[] {
  return names.flatMap((name, index): EventProblem[] => {
    if (name === EVERYTHING) {
      return names.length === 1 ? [] : [{ index, message: 'stands alone: send ["*"] for every event' }];
    }
    return isEventName(name) ? [] : [{ index, message: "is not an event; GET /webhooks/events lists them" }];
  });
}

/** The requested events: each once, in the order they came, `["*"]` as the names of the catalogue. */
export const resolveEvents = (names: readonly string[]): EventName[] =>
  names.length === 1 && names[0] === EVERYTHING ? [...EVENT_NAMES] : [...new Set(names.filter(isEventName))];
