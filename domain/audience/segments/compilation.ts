import type { RawBuilder } from "kysely";
import type { ContactFieldType } from "../../../db/entities/contact.ts";
import type { Tenant } from "../../../db/orm.ts";
import type { FieldTypes } from "../field-values.ts";
import type { Place } from "./place.ts";

/** Within them Postgres plans and executes a segment's statement. */
export const SEGMENT_LIMITS = {
  depth: 10,
  /** Beside `all`, `any` and `not`. */
  conditions: 100,
  /** Of them, those on lists and events: each is a join. */
  joins: 10,
  /** Values of all `in` together. */
  values: 1_000,
  /** Length of the conditions as JSON, in characters. */
  jsonLength: 100_000,
} as const;

const COUNTED = {
  conditions: "conditions",
  joins: "conditions on lists and events",
  values: "values of in",
} as const;

/** Collects what the conditions of a segment name while they are compiled. */
export class Compilation {
  readonly tenant: Tenant;
  readonly declared: FieldTypes;
  readonly fields = new Map<string, ContactFieldType>();
  /** Queries for distinct addresses; the n-th is joined as `setAlias(n)`. */
  readonly sets: RawBuilder<unknown>[] = [];
  readonly lists: Place[] = [];
  /** Newsletters and campaigns. */
  readonly resources: Place[] = [];
  readonly #counts = { conditions: 0, joins: 0, values: 0 };

  constructor(tenant: Tenant, declared: FieldTypes) {
    this.tenant = tenant;
    this.declared = declared;
  }

  /** @throws {ConditionProblem} beyond its limit */
  count(kind: keyof typeof COUNTED, place: Place): void {
    const limit = SEGMENT_LIMITS[kind];
    this.#counts[kind]++;
    if (this.#counts[kind] > limit)
      throw place.problem(`is beyond the ${limit} ${COUNTED[kind]} that a segment may have`);
  }
}

export const setAlias = (n: number): string => `set_${n}`;
