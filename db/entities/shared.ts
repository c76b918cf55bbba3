import { p } from "@mikro-orm/postgresql";

/** The two strictly separate environments of a team; every row belongs to one. */
export const ENVIRONMENTS = ["LIVE", "TEST"] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

/** Milliseconds, as JavaScript dates have them: cursors on a finer column would skip or repeat rows. */
export const instant = () => p.datetime(3);

/** `created_at` and `updated_at`, both from the database clock: the second by a trigger on every table that has it. */
export const timestamps = {
  createdAt: instant().defaultRaw("now()"),
  updatedAt: instant().defaultRaw("now()"),
};

/** The tenant of a row. */
export const tenancy = {
  teamId: p.text(),
  environment: p.text().$type<Environment>(),
};

/** A person whom mail may go to. */
export const person = {
  /** In the spelling that addresses are compared by. */
  email: p.text(),
  /** The client's own spelling, where it differs. */
  emailSpelling: p.text().nullable(),
  firstName: p.text().nullable(),
  lastName: p.text().nullable(),
};

/**
 * The tenant filter of every team-owned entity. It is on by default and throws when no tenant is set, so that a query
 * without a tenant fails instead of reading another team's rows.
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
