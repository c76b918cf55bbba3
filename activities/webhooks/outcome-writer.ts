import { setTimeout as delay } from "node:timers/promises";
import { areSteadySuccesses, type EndpointOutcome, writeOutcomes } from "../../domain/webhooks/outcomes.ts";
import type { ActivityDeps } from "../deps.ts";

/** How long outcomes are kept for a database that is away, and how often it is tried. */
const KEEP_MS = 20_000;
const AGAIN_MS = 250;

/** Statements of a team under way at once, and how many outcomes a second one needs: successes of steady endpoints, in any order. */
const AT_ONCE = 2;
const ENOUGH = 8;

interface TeamWrites {
  gathered: EndpointOutcome[];
  /** Resolves with the statement that writes what is gathered. */
  next: PromiseWithResolvers<void>;
  underWay: number;
}

/**
 * Writes the outcomes of all endpoints of a team in one statement: while it waits for the disk, those of the next gather. A team whose
 * endpoint is locked holds up no other.
 */
export class OutcomeWriter {
  readonly #deps: Pick<ActivityDeps, "orm" | "log" | "countAttempts">;
  readonly #teams = new Map<string, TeamWrites>();

  constructor(deps: Pick<ActivityDeps, "orm" | "log" | "countAttempts">) {
    this.#deps = deps;
  }

  /** @throws when Postgres was away for too long: the next owner of the endpoint lists the attempt as unknown */
  write(teamId: string, outcome: EndpointOutcome): Promise<void> {
    const team = this.#teams.get(teamId) ?? { gathered: [], next: Promise.withResolvers<void>(), underWay: 0 };
    this.#teams.set(teamId, team);
    team.gathered.push(outcome);
    const { promise } = team.next;
    this.#begin(teamId, team);
    return promise;
  }

  #begin(teamId: string, team: TeamWrites): void {
    const { gathered, next, underWay } = team;
    const isSecond = gathered.length >= ENOUGH && areSteadySuccesses(gathered);
    if (gathered.length === 0 || underWay >= (isSecond ? AT_ONCE : 1)) return;
    team.gathered = [];
    team.next = Promise.withResolvers();
    team.underWay++;
    const end = () => {
      team.underWay--;
      this.#begin(teamId, team);
      if (team.underWay === 0) this.#teams.delete(teamId);
    };
    const written = this.#tryFor(gathered);
    next.resolve(written);
    written.then(end, end);
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
        log.warn(
          { err: error, outcomes: outcomes.length },
          "outcomes of deliveries could not be written; tried again soon",
        );
      }
    }
  }
}
