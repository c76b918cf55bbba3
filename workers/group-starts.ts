import { setTimeout as delay } from "node:timers/promises";
import type { Group } from "../domain/webhooks/grouping.ts";

/** Workflows that are being started at once. */
const STARTS = 16;
/** With so many groups pending there is no room for more. Temporal starts 500 workflows within some 4 s. */
export const MOST_PENDING = 500;
/** How long `close` starts groups that wait. */
const CLOSE_MS = 3_000;
const CLOSE_POLL_MS = 20;

/**
 * Starts the workflows of groups, `STARTS` at once and never the same group twice at a time. The teams take turns, a group at a
 * time: new endpoints of one team do not delay the groups of others. Not p-limit, which knows no turns.
 */
export class GroupStarts {
  readonly #start: (group: Group) => Promise<void>;
  /** Ids of groups that wait or whose start is under way. */
  readonly #pending = new Set<string>();
  /** Groups that wait, by team, in the order of the teams' turns. */
  readonly #waiting = new Map<string, Group[]>();
  #underWay = 0;
  /** When a start last ended, or began while no other was under way, by `performance.now()`. */
  #movedAt = 0;

  /** @param start starts the workflow of a group; it never rejects */
  constructor(start: (group: Group) => Promise<void>) {
    this.#start = start;
  }

  /** Whether a relay may form more groups: if it did so faster than Temporal takes their workflows, it would fill Postgres with groups. */
  get hasRoom(): boolean {
    return this.#pending.size < MOST_PENDING;
  }

  /** For how long, in ms, no start has ended while all places were taken. */
  get standstillMs(): number {
    return this.#underWay < STARTS ? 0 : performance.now() - this.#movedAt;
  }

  /** Starts the workflow of a group when it is its turn. Does nothing if the group is pending. */
  add(group: Group): void {
    if (this.#pending.has(group.id)) return;
    this.#pending.add(group.id);
    const waiting = this.#waiting.get(group.teamId);
    if (waiting) waiting.push(group);
    else this.#waiting.set(group.teamId, [group]);
    this.#fillPlaces();
  }

  /** Forgets the groups that wait: a sweep finds them. */
  dropWaiting(): void {
    for (const { id } of [...this.#waiting.values()].flat()) this.#pending.delete(id);
    this.#waiting.clear();
  }

  /** Waits until no start is under way. Drops the groups that wait if they have not begun soon. */
  async close(): Promise<void> {
    const dropAt = performance.now() + CLOSE_MS;
    for (; this.#pending.size > 0; await delay(CLOSE_POLL_MS)) {
      if (performance.now() > dropAt) this.dropWaiting();
    }
  }

  #fillPlaces(): void {
    for (const [teamId, groups] of this.#waiting) {
      if (this.#underWay >= STARTS) return;
      const group = groups.shift();
      // The team moves to the end of the order, or out of it when no group of it waits.
      this.#waiting.delete(teamId);
      if (groups.length > 0) this.#waiting.set(teamId, groups);
      if (group) void this.#run(group);
    }
  }

  async #run(group: Group): Promise<void> {
    if (this.#underWay === 0) this.#movedAt = performance.now();
    this.#underWay++;
    await this.#start(group);
    this.#underWay--;
    this.#movedAt = performance.now();
    this.#pending.delete(group.id);
    this.#fillPlaces();
  }
}
