import { ApplicationFailure } from "@temporalio/common";

/** Each holds a connection or two, and keeps a core of Postgres busy. */
const AT_ONCE = 3;
const ASK_AGAIN = "1 second";

/** Places for plans that take long, one for a team at most: a team must not take the connections of others. */
export class LongPlans {
  readonly #teams = new Set<string>();

  /** @throws {ApplicationFailure} when there is no place: Temporal tries the activity again soon */
  async run<T>(teamId: string, work: () => Promise<T>): Promise<T> {
    if (this.#teams.has(teamId) || this.#teams.size >= AT_ONCE) {
      const type = "places_taken";
      throw ApplicationFailure.create({ message: type, type, nextRetryDelay: ASK_AGAIN });
    }
    this.#teams.add(teamId);
    try {
      return await work();
    } finally {
      this.#teams.delete(teamId);
    }
  }
}
