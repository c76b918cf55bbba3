import type { GroupLane } from "../../db/entities/webhook.ts";
import type { EndpointHealth } from "./endpoint-health.ts";

/** Deliveries that a group begins with, at most; at 100 the cost of a workflow is shared widely enough. */
export const GROUP_SIZE = 100;

/**
 * NEW groups of a working endpoint that may be at their first attempt at once: so many full ones, and so many that are
 * not. Deliveries that come meanwhile wait in Postgres, so that the busier an endpoint is, the fuller its groups get.
 * Other endpoints get one group at a time.
 */
const FULL_GROUPS = 6;
const PARTIAL_GROUPS = 2;
/**
 * Places for deliveries that are not new, of a working endpoint: for BACKLOG groups at their first attempt and for groups
 * that retry. They are apart from the places of NEW groups, so that neither holds up the other.
 */
export const OLD_GROUPS = 3;
/**
 * Groups that the endpoints of a team have under way at once, of both kinds. With more of them each carries fewer deliveries,
 * and costs as much. Of what is left an endpoint may take as many as it leaves free, so that slow ones do not keep all; its
 * first of each kind is always its own, also beyond this number.
 */
export const TEAM_GROUPS = 24;
/** Probes of an endpoint whose groups exist at once, when the workflows of earlier ones are held or were lost. */
const MOST_PROBES = 3;

/** An endpoint that deliveries wait for, and its groups under way. */
export interface EndpointLoad {
  health: EndpointHealth;
  /** NEW groups at their first attempt. */
  newGroups: number;
  /** Taken places for deliveries that are not new. */
  oldGroups: number;
  /** Groups of all endpoints of its team that are NEW at their first attempt, or hold a place for others. */
  teamGroups: number;
  /** Groups of probes. */
  probes: number;
  /** One of them was formed lately, so it may still get its answer. */
  isProbed: boolean;
}

/** A delivery that was attempted before, or waited while its endpoint was failing. */
export interface OldDelivery {
  id: string;
  attemptsUsed: number;
}

/** The deliveries that wait for an endpoint, oldest first; at least as many as it has room for. */
export interface WaitingDeliveries {
  /** Never attempted, and written since the endpoint last stopped failing. */
  fresh: readonly string[];
  /** The first of `fresh` has waited for so long that the group before it must be held up by a slow answer. */
  isHeldUp: boolean;
  old: readonly OldDelivery[];
  /** Whose turn it is to be the probe. */
  next: OldDelivery | null;
}

export interface PlannedGroup {
  lane: GroupLane;
  /** The same for all of its deliveries: they continue the ladder at the next attempt. */
  attemptsUsed: number;
  ids: string[];
}

/**
 * How many more groups of a kind an endpoint may have.
 * @param most it may have in all
 * @param held those that it has
 */
export function moreGroups(most: number, held: number, teamGroups: number): number {
  // Each further one needs held + n < free - n.
  const share = Math.ceil((TEAM_GROUPS - teamGroups - held) / 2);
  return Math.max(0, Math.min(most - held, Math.max(share, held === 0 ? 1 : 0)));
}

/** How many deliveries an endpoint has room for. */
export interface Room {
  fresh: number;
  old: number;
  probe: 0 | 1;
}

/** The room of an endpoint. A failing one has room for a probe alone; whether that is due is not asked here. */
export function roomOf({ health, newGroups, oldGroups, teamGroups, probes, isProbed }: EndpointLoad): Room {
  if (health === "failing") return { fresh: 0, old: 0, probe: isProbed || probes >= MOST_PROBES ? 0 : 1 };
  const isWorking = health === "working";
  return {
    fresh: moreGroups(isWorking ? FULL_GROUPS : 1, newGroups, teamGroups) * GROUP_SIZE,
    old: moreGroups(isWorking ? OLD_GROUPS : 1, oldGroups, teamGroups) * GROUP_SIZE,
    probe: 0,
  };
}

/** Puts the deliveries that wait for an endpoint into groups, as far as it has room for them. */
export function planGroups(load: EndpointLoad, waiting: WaitingDeliveries): PlannedGroup[] {
  const room = roomOf(load);
  if (room.probe > 0) {
    const { next } = waiting;
    return next ? [{ lane: "PROBE", attemptsUsed: next.attemptsUsed, ids: [next.id] }] : [];
  }
  const planned = planNew(load, room, waiting);
  const { old } = roomOf({ ...load, teamGroups: load.teamGroups + planned.length });
  return [...planned, ...planBacklog(old, waiting)];
}

function planNew({ health, newGroups }: EndpointLoad, room: Room, { fresh, isHeldUp }: WaitingDeliveries) {
  const chunks = chunked(fresh.slice(0, room.fresh));
  // Beside full groups of the same call the rest gets one only when it is held up: else it is fuller soon.
  const mayBePartial =
    health === "working" && isHeldUp ? newGroups < PARTIAL_GROUPS : newGroups === 0 && chunks.length === 1;
  return chunks
    .filter((ids) => ids.length === GROUP_SIZE || mayBePartial)
    .map((ids): PlannedGroup => ({ lane: "NEW", attemptsUsed: 0, ids }));
}

/** The deliveries of a group continue the ladder together, so those that used up as many attempts share one. */
function planBacklog(room: number, { old }: WaitingDeliveries): PlannedGroup[] {
  const places = room / GROUP_SIZE;
  const age = new Map(old.map(({ id }, i) => [id, i]));
  const ageOf = ({ ids: [id = ""] }: PlannedGroup) => age.get(id) ?? 0;
  return [...Map.groupBy(old.slice(0, room), ({ attemptsUsed }) => attemptsUsed)]
    .flatMap(([attemptsUsed, members]) =>
      chunked(members.map(({ id }) => id)).map((ids): PlannedGroup => ({ lane: "BACKLOG", attemptsUsed, ids })),
    )
    .sort((a, b) => ageOf(a) - ageOf(b))
    .slice(0, places);
}

const chunked = (ids: readonly string[]): string[][] =>
  Array.from({ length: Math.ceil(ids.length / GROUP_SIZE) }, (_, i) => ids.slice(i * GROUP_SIZE, (i + 1) * GROUP_SIZE));
