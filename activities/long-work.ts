import { ApplicationFailure } from "@temporalio/common";

/** Of one kind in a process at once, each of another team: it leaves Postgres and places of its pool to other work. */
const AT_ONCE = 3;
/** How soon work without a place looks for one again. */
export const LOOK_AGAIN_MS = 2_000;

/** The places for one kind of long work. @returns runs work of a team in a place, and `full` when there is none for it */
export function placesForLongWork() {
  const teams = new Set<string>();
  return async <T>(teamId: string, run: () => Promise<T>, full: () => T): Promise<T> => {
    if (teams.size >= AT_ONCE || teams.has(teamId)) return full();
    teams.add(teamId);
    try {
      return await run();
    } finally {
      teams.delete(teamId);
    }
  };
}

/** Leaves work to a later attempt of its activity: as a rule because there is no place. @param type of the failure, in the history */
export function tryAgain(type = "no_place", nextRetryDelay = LOOK_AGAIN_MS): never {
  throw ApplicationFailure.create({ message: type, type, nextRetryDelay });
}
