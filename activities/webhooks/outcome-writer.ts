import { setTimeout as delay } from "node:timers/promises";
import { type EndpointOutcome, writeOutcomes } from "../../domain/webhooks/outcomes.ts";
import { Batches } from "../../lib/batches.ts";
import type { ActivityDeps } from "../deps.ts";

/** How long outcomes are kept for a database that is away, and how often it is tried. */
const KEEP_MS = 20_000;
const AGAIN_MS = 250;

/** Writes the outcomes of all endpoints of a team in one statement: a team whose endpoint is locked holds up no other. */
export class OutcomeWriter {
  readonly #deps: Pick<ActivityDeps, "orm" | "log" | "countAttempts">;
  readonly #teams = new Batches<EndpointOutcome, void>();

  constructor(deps: Pick<ActivityDeps, "orm" | "log" | "countAttempts">) {
    this.#deps = deps;
  }

  /** @throws when Postgres was away for too long: the next owner of the endpoint lists the attempt as unknown */
  async write(teamId: string, outcome: EndpointOutcome): Promise<void> {
    await this.#teams.join(teamId, outcome, (outcomes) => this.#tryFor(outcomes));
  }

  async #tryFor(outcomes: readonly EndpointOutcome[]): Promise<void> {
    const { orm, log, countAttempts } = this.#deps;
    for (const giveUpAt = performance.now() + KEEP_MS; ; await delay(AGAIN_MS)) {
      try {
        const changes = await writeOutcomes(orm.em.fork(), outcomes);
        for (const [webhookId, state] of changes) log.info({ webhookId, state }, `an endpoint is ${state}`);
        countAttempts(outcomes);
        return;
      } catch (error) {
        if (performance.now() > giveUpAt) throw error;
        const message = "outcomes of deliveries could not be written; tried again soon";
        log.warn({ err: error, outcomes: outcomes.length }, message);
      }
    }
  }
}
