import type { RawBuilder } from "kysely";
import type { ContactFieldType } from "../../../db/entities/contact.ts";
import type { Tenant } from "../../../db/orm.ts";
import type { FieldTypes } from "../field-values.ts";
import type { Place } from "./place.ts";

/** The limits of a segment, within which Postgres plans and executes its statement. */
export const SEGMENT_LIMITS = {
  /** Conditions inside each other. */
  depth: 10,
  /** Conditions in all, beside `all`, `any` and `not`. */
  conditions: 100,
  /** Of them, those on lists and events: each is a join. */
  joins: 10,
  /** Values of all `in` together. */
  values: 1_000,
  /** Length of the conditions as JSON, in characters. */
  jsonLength: 100_000,
} as const;

/** The counted things, as a message names them. */
const COUNTED = {
  conditions: "conditions",
  joins: "conditions on lists and events",
  values: "values of in",
} as const;

/** The fields and resources to which the conditions of one segment refer, collected while they are compiled. */
export class Compilation {
  readonly tenant: Tenant;
  readonly declared: FieldTypes;
  /** Types of the custom fields that the conditions name. */
  readonly fields = new Map<string, ContactFieldType>();
  /** Queries for addresses, each of which gives an address once. The n-th is joined as `setAlias(n)`. */
  readonly sets: RawBuilder<unknown>[] = [];
  /** The places that name a list. */
  readonly lists: Place[] = [];
  /** The places that name a newsletter or a campaign. */
  readonly resources: Place[] = [];
  readonly #counts = { conditions: 0, joins: 0, values: 0 };

  constructor(tenant: Tenant, declared: FieldTypes) {
    this.tenant = tenant;
    this.declared = declared;
  }

  /** Counts something at this place. @throws {ConditionProblem} beyond its limit */
  count(kind: keyof typeof COUNTED, place: Place): void {
    const limit = SEGMENT_LIMITS[kind];
    this.#counts[kind]++;
    if (this.#counts[kind] > limit)
      throw place.problem(`is beyond the ${limit} ${COUNTED[kind]} that a segment may have`);
  }
}

/** The alias of the n-th set of addresses. */
export const setAlias = (n: number): string => `set_${n}`;
