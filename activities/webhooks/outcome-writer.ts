import { setTimeout as delay } from "node:timers/promises";
import { type EndpointOutcome, writeOutcomes } from "../../domain/webhooks/outcomes.ts";
import type { ActivityDeps } from "../deps.ts";

/** How long outcomes are kept for a database that is away, and how often it is tried. */
const KEEP_MS = 20_000;
const AGAIN_MS = 250;

interface TeamWrites {
  gathered: EndpointOutcome[];
  /** Ends with the statement under way. */
  writing: Promise<void>;
  /** Ends with the statement that writes what is gathered. */
  next: Promise<void> | undefined;
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
    const team = this.#teams.get(teamId) ?? { gathered: [], writing: Promise.resolve(), next: undefined };
    this.#teams.set(teamId, team);
    team.gathered.push(outcome);
    team.next ??= team.writing.then(() => this.#writeGathered(teamId, team));
    return team.next;
  }

  #writeGathered(teamId: string, team: TeamWrites): Promise<void> {
    const written = this.#tryFor(team.gathered);
    team.gathered = [];
    team.next = undefined;
    const end = () => {
      if (!team.next) this.#teams.delete(teamId);
    };
    team.writing = written.then(end, end);
    return written;
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
