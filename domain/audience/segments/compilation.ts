import type { RawBuilder } from "kysely";
import type { Tenant } from "../../../db/orm.ts";
import type { FieldTypes } from "../field-values.ts";
import type { Place } from "./place.ts";

/** Within them conditions are compiled in 20 ms, and Postgres plans and executes a segment's statement. */
export const SEGMENT_LIMITS = {
  depth: 10,
  /** Conditions on lists and events. */
  joins: 10,
  /** Elements of all lists: conditions, and values to compare with. */
  elements: 2_000,
  /** Length of the conditions as JSON, in characters. */
  jsonLength: 100_000,
} as const;

/** In place of all contacts. */
export interface Among {
  /** A query with the columns of contacts that conditions read. */
  people: RawBuilder<unknown>;
  /** A query for their addresses. */
  emails: RawBuilder<unknown>;
  /** The newsletter or campaign that an event without a resource is of. */
  eventsOf: string;
}

/** Collects what the conditions of a segment name while they are compiled. */
export interface Compilation {
  tenant: Tenant;
  declared: FieldTypes;
  /** Queries for distinct addresses; the n-th is joined as `setAlias(n)`. */
  sets: RawBuilder<unknown>[];
  lists: Place[];
  /** Newsletters and campaigns. */
  resources: Place[];
  /** Links of them. */
  links: Place[];
  among?: Among | undefined;
}

export const setAlias = (n: number): string => `set_${n}`;
