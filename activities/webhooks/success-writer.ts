import { Lines } from "../../db/lines.ts";
import type { EntityManager } from "../../db/orm.ts";
import { Batches } from "../../domain/access/batches.ts";
import { type EndpointOutcomes, writeSuccesses } from "../../domain/webhooks/attempts.ts";
import type { SharedPlaces } from "./shared-places.ts";

/** How long outcomes wait for those of other groups at most, in ms. */
const GATHER_MS = 20;
/**
 * A group that wrote within this time, in ms, is expected to write again. One that has ended, or whose endpoint hangs, is soon
 * not expected any more.
 */
const EXPECTED_MS = 200;
/** A write begins once this share of the expected groups wait for it: the others send requests meanwhile. */
const GATHERED_SHARE = 0.5;

/** The writes of one team. */
class TeamWrites {
  /** Outcomes that the next write takes. */
  waiting: EndpointOutcomes[] = [];
  /** When each group wrote last, by `performance.now()`; the latest is the last. */
  readonly #wroteAt = new Map<symbol, number>();
  readonly #expectedMs: number;
  #endGathering: (() => void) | undefined;

  constructor(expectedMs: number) {
    this.#expectedMs = expectedMs;
  }

  add(writer: symbol, outcomes: EndpointOutcomes): void {
    this.#wroteAt.delete(writer);
    this.#wroteAt.set(writer, performance.now());
    this.waiting.push(outcomes);
    if (this.#hasEnough()) this.#endGathering?.();
  }

  takeWaiting(): EndpointOutcomes[] {
    const taken = this.waiting;
    this.waiting = [];
    return taken;
  }

  /** Waits for outcomes of further groups that are expected. */
  gather(): Promise<void> | undefined {
    if (this.#hasEnough()) return undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, GATHER_MS);
    this.#endGathering = () => {
      clearTimeout(timer);
      resolve();
    };
    return promise.finally(() => {
      this.#endGathering = undefined;
    });
  }

  #hasEnough(): boolean {
    const since = performance.now() - this.#expectedMs;
    for (const [writer, at] of this.#wroteAt) {
      if (at >= since) break;
      this.#wroteAt.delete(writer);
    }
    return this.waiting.length >= this.#wroteAt.size * GATHERED_SHARE;
  }
}

/**
 * Writes successes of all groups of a team together: each statement has a cost of its own. While one write waits for the
 * disk, the outcomes of further groups gather for the next.
 */
export class SuccessWriter {
  readonly #em: EntityManager;
  readonly #connections: SharedPlaces;
  readonly #batches = new Batches<ReadonlySet<string>>((teamId) => this.#teams.of(teamId).gather());
  readonly #teams: Lines<TeamWrites>;

  /** @param connections to Postgres */
  constructor(em: EntityManager, connections: SharedPlaces, { expectedMs = EXPECTED_MS } = {}) {
    this.#em = em.fork();
    this.#connections = connections;
    this.#teams = new Lines(
      () => new TeamWrites(expectedMs),
      ({ waiting }) => waiting.length === 0,
    );
  }

  /**
   * @param writer one for each slice of a group, for all its writes
   * @returns false when nothing was written, see `writeSuccesses`
   */
  async write(teamId: string, writer: symbol, written: EndpointOutcomes): Promise<boolean> {
    const team = this.#teams.of(teamId);
    team.add(writer, written);
    const { result } = await this.#batches.join(teamId, () => {
      const batch = team.takeWaiting();
      return this.#connections.run(teamId, () => writeSuccesses(this.#em, batch));
    });
    return result.has(written.webhookId);
  }
}
