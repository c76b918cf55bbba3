/** Of one kind in a process at once, each of another team: it leaves Postgres and places of its pool to other work. */
const AT_ONCE = 3;
/** How soon work without a place looks for one again. */
export const LOOK_AGAIN_MS = 2_000;

export type LongWork = <T>(teamId: string, run: () => Promise<T>) => Promise<T | undefined>;

/** The places for one kind of long work. @returns runs work of a team in a place; answers undefined when there is none for it */
export function placesForLongWork(): LongWork {
  const teams = new Set<string>();
  return async (teamId, run) => {
    if (teams.size >= AT_ONCE || teams.has(teamId)) return undefined;
    teams.add(teamId);
    try {
      return await run();
    } finally {
      teams.delete(teamId);
    }
  };
}
