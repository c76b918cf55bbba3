import { p } from "@mikro-orm/postgresql";

/** The two strictly separate worlds of a team; every row belongs to one. */
export const ENVIRONMENTS = ["LIVE", "TEST"] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

/** Milliseconds, as JavaScript dates have them: cursors on a finer column would skip or repeat rows. */
export const instant = () => p.datetime(3);

/** `created_at` and `updated_at`, both from the database clock: the second by a trigger on every table that has it. */
export const timestamps = {
  createdAt: instant().defaultRaw("now()"),
  updatedAt: instant().defaultRaw("now()"),
};

/** What makes a row somebody's: its team and environment. */
export const tenancy = {
  teamId: p.text(),
  environment: p.text().$type<Environment>(),
};

/**
 * The tenant filter of every team-owned entity. It is on by default and throws when no tenant is set, so a query that
 * forgets its tenant fails instead of reading somebody else's rows.
 */
export const tenantFilters = {
  tenant: {
    name: "tenant",
    cond: (args: { teamId: string; environment: Environment }) => ({
      teamId: args.teamId,
      environment: args.environment,
    }),
    default: true,
  },
};
