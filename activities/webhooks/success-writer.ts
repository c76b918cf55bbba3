import { Lines } from "../../db/lines.ts";
import type { EntityManager } from "../../db/orm.ts";
import { Batches } from "../../domain/access/batches.ts";
import { type EndpointOutcomes, writeSuccesses } from "../../domain/webhooks/attempts.ts";
import type { SharedPlaces } from "./shared-places.ts";

/** How long outcomes wait for those of other groups at most, in ms. */
const GATHER_MS = 20;
/** A writing begins sooner once this share of the team's groups wait for it: the others send meanwhile. */
const ENOUGH = 0.5;

class Team {
  /** Groups that send requests: as many may write. */
  sending = 0;
  /** Outcomes that the next writing takes. */
  waiting: EndpointOutcomes[] = [];
  /** Ends the wait for further outcomes. */
  endGathering: (() => void) | undefined;

  get hasEnough(): boolean {
    return this.waiting.length >= this.sending * ENOUGH;
  }
}

/**
 * Writes successes of all groups of a team together: each statement has a cost of its own. While one writing waits for the
 * disk, the outcomes of further groups gather for the next.
 */
export class SuccessWriter {
  readonly #em: EntityManager;
  readonly #connections: SharedPlaces;
  readonly #batches = new Batches<ReadonlySet<string>>((teamId) => this.#gathered(teamId));
  readonly #teams = new Lines(
    () => new Team(),
    ({ sending, waiting }) => sending === 0 && waiting.length === 0,
  );

  /** @param connections to Postgres */
  constructor(em: EntityManager, connections: SharedPlaces) {
    this.#em = em.fork();
    this.#connections = connections;
  }

  /** Counts a group of a team among those that write, while it sends. */
  async whileSending<T>(teamId: string, send: () => Promise<T>): Promise<T> {
    const team = this.#teams.of(teamId);
    team.sending++;
    try {
      return await send();
    } finally {
      team.sending--;
      if (team.hasEnough) team.endGathering?.();
    }
  }

  /** @returns false when nothing was written, see `writeSuccesses` */
  async write(teamId: string, written: EndpointOutcomes): Promise<boolean> {
    const team = this.#teams.of(teamId);
    team.waiting.push(written);
    if (team.hasEnough) team.endGathering?.();
    const { result } = await this.#batches.join(teamId, () => {
      const batch = team.waiting;
      team.waiting = [];
      return this.#connections.run(teamId, () => writeSuccesses(this.#em, batch));
    });
    return result.has(written.webhookId);
  }

  #gathered(teamId: string): Promise<void> | undefined {
    const team = this.#teams.of(teamId);
    if (team.hasEnough) return undefined;
    const { promise, resolve } = Promise.withResolvers<void>();
    const timer = setTimeout(resolve, GATHER_MS);
    team.endGathering = () => {
      clearTimeout(timer);
      resolve();
    };
    return promise.finally(() => {
      team.endGathering = undefined;
    });
  }
}
