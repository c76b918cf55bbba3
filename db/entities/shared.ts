import { p } from "@mikro-orm/postgresql";

/**
 * The data of recipients that a column may hold.
 * - `person`: data of the person that the row is about. An erasure deletes the row, or takes the data out of it.
 * - `searched`: a text that the service made. An erasure searches it for the address.
 * - `team`: a text that the team wrote, or data of its own members. An erasure leaves it and names its record.
 * - `none`: ids, codes, hashes and sealed secrets; also every column that holds no text.
 */
export type PersonalData = "person" | "searched" | "team" | "none";

/** From these, erasures, retention and rotations of keys derive their work. */
export interface ColumnFacts {
  personal?: PersonalData | undefined;
  /** An interval: rows are deleted this long after the instant or day in this column. */
  retention?: string | undefined;
  /** In rows that meet this condition. */
  sealed?: string | undefined;
}

/** `assignOptions` keeps options that MikroORM does not know. */
const stating = <Builder>(builder: Builder, facts: ColumnFacts): Builder =>
  (builder as { assignOptions(options: ColumnFacts): Builder }).assignOptions(facts);

export const holding = <Builder>(personal: PersonalData, builder: Builder): Builder => stating(builder, { personal });
export const expiring = <Builder>(retention: string, builder: Builder): Builder => stating(builder, { retention });

export const text = (personal: PersonalData) => holding(personal, p.text());
/** No personal data. */
export const code = () => text("none");
export const codes = () => holding("none", p.array());
export const sealed = (where = "true", builder = code()) => stating(builder, { sealed: where });

export const ENVIRONMENTS = ["LIVE", "TEST"] as const;
export type Environment = (typeof ENVIRONMENTS)[number];

/** Milliseconds, as JavaScript dates have them: cursors on a finer column would skip or repeat rows. */
export const instant = () => p.datetime(3);

/** `created_at` and `updated_at`, both from the database clock: the second by a trigger on every table that has it. */
export const timestamps = {
  createdAt: instant().defaultRaw("now()"),
  updatedAt: instant().defaultRaw("now()"),
};

/** Of records that members edit in the console. */
export const edited = {
  ...timestamps,
  /** The member whose save in the console was the last change, by the trigger; null for any other change. */
  updatedBy: code().nullable(),
};

export const tenancy = {
  teamId: code(),
  environment: code().$type<Environment>(),
};

export const tenantKey = {
  teamId: code().primary(),
  environment: code().$type<Environment>().primary(),
};

export const listIndexes = [
  { properties: ["teamId" as const, "environment" as const, "updatedAt" as const, "id" as const] },
  { properties: ["teamId" as const, "environment" as const, "createdAt" as const, "id" as const] },
];

export const person = {
  /** As addresses are compared. */
  email: text("person"),
  /** Where the client's own spelling differs. */
  emailSpelling: text("person").nullable(),
  firstName: text("person").nullable(),
  lastName: text("person").nullable(),
};

/** It throws when no tenant is set, so that a query without one fails instead of reading another team's rows. */
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
