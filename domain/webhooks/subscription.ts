import type { Scope } from "../access/scopes.ts";
import { EVENT_NAMES, EVENTS, type EventName, isEventName } from "./catalogue.ts";

/** Stands for every event there is when it is given. */
const EVERYTHING = "*";

/** Any one of these lets a key have events sent that carry people's addresses. */
export const CONTACT_SCOPES = ["contacts:read", "suppressions:read"] as const satisfies readonly Scope[];

/** The events that take one of `CONTACT_SCOPES`. */
export const CONTACT_EVENTS: readonly EventName[] = EVENT_NAMES.filter((name) => EVENTS[name].contactData);

const contactEvents: ReadonlySet<string> = new Set(CONTACT_EVENTS);
export const carriesContactData = (events: readonly string[]): boolean =>
  events.some((name) => contactEvents.has(name));

/** What is wrong with a wish for events; `index` is its place in the list. */
export interface EventProblem {
  index: number;
  message: string;
}

/** Everything that is wrong with the events somebody asks for; empty when nothing is. */
export function eventProblems(names: readonly string[]): EventProblem[] {
  return names.flatMap((name, index): EventProblem[] => {
    if (name === EVERYTHING) {
      return names.length === 1 ? [] : [{ index, message: 'stands alone: send ["*"] for every event' }];
    }
    return isEventName(name) ? [] : [{ index, message: "is not an event; GET /webhooks/events lists them" }];
  });
}

/** The events that are asked for: each once, in the order they came, `["*"]` as the names there are now. */
export const resolveEvents = (names: readonly string[]): EventName[] =>
  names.length === 1 && names[0] === EVERYTHING ? [...EVENT_NAMES] : [...new Set(names.filter(isEventName))];
