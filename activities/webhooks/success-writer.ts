import type { EntityManager } from "../../db/orm.ts";
import { Batches } from "../../domain/access/batches.ts";
import { type EndpointOutcomes, writeSuccesses } from "../../domain/webhooks/attempts.ts";
import type { SharedPlaces } from "./shared-places.ts";

/**
 * Writes successes of all groups of a team together: while one writing waits for the disk, the outcomes of further groups
 * gather for the next.
 */
export class SuccessWriter {
  readonly #em: EntityManager;
  readonly #connections: SharedPlaces;
  readonly #batches = new Batches<ReadonlySet<string>>();
  /** Outcomes that the next writing takes, by team. */
  readonly #waiting = new Map<string, EndpointOutcomes[]>();

  /** @param connections to Postgres */
  constructor(em: EntityManager, connections: SharedPlaces) {
    this.#em = em.fork();
    this.#connections = connections;
  }

  /** @returns false when nothing was written, see `writeSuccesses` */
  async write(teamId: string, written: EndpointOutcomes): Promise<boolean> {
    const waiting = this.#waiting.get(teamId);
    if (waiting) waiting.push(written);
    else this.#waiting.set(teamId, [written]);
    const { result } = await this.#batches.join(teamId, () => {
      const batch = this.#waiting.get(teamId) ?? [];
      this.#waiting.delete(teamId);
      return this.#connections.run(teamId, () => writeSuccesses(this.#em, batch));
    });
    return result.has(written.webhookId);
  }
}
