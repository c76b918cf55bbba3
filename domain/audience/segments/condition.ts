import { type RawBuilder, type SqlBool, sql } from "kysely";
import { ofTenant } from "../../../db/orm.ts";
import { type Compilation, SEGMENT_LIMITS, setAlias } from "./compilation.ts";
import { fieldCondition } from "./field-conditions.ts";
import { Place } from "./place.ts";
import { eventCondition, listCondition } from "./set-conditions.ts";

type Compile = (place: Place, compilation: Compilation, depth: number) => RawBuilder<SqlBool>;

const combine =
  (key: "all" | "any", word: RawBuilder<unknown>): Compile =>
  (place, compilation, depth) => {
    place.refuseBeside(key);
    const parts = place.at(key).elements();
    return sql`(${sql.join(
      parts.map((part) => compile(part, compilation, depth + 1)),
      word,
    )})`;
  };

/** By the property that only this kind has. */
const KINDS: Readonly<Record<string, Compile>> = {
  all: combine("all", sql` and `),
  any: combine("any", sql` or `),
  not: (place, compilation, depth) => {
    place.refuseBeside("not");
    return sql`(not ${compile(place.at("not"), compilation, depth + 1)})`;
  },
  field: fieldCondition,
  list: listCondition,
  event: eventCondition,
};

const compile: Compile = (place, compilation, depth) => {
  if (depth > SEGMENT_LIMITS.depth) {
    throw place.problem(
      `is deeper than the ${SEGMENT_LIMITS.depth} conditions inside each other that a segment may have`,
    );
  }
  const keys = place.keys();
  const found = Object.entries(KINDS).find(([key]) => keys.includes(key));
  if (!found) throw place.problem(`is of no known kind: it must have one of ${Object.keys(KINDS).join(", ")}`);
  const [, compileKind] = found;
  return compileKind(place, compilation, depth);
};

/** So that `JSON.stringify` does not overflow the stack. */
const MAX_JSON_DEPTH = 100;

/** Every condition passes here before anything is read of it: compiling a long one would stop the process for seconds. */
function refuseLarge(conditions: Place): void {
  const { elements: mostElements, jsonLength } = SEGMENT_LIMITS;
  let elements = 0;
  const rest = [{ value: conditions.value, depth: 1 }];
  for (const { value, depth } of rest) {
    if (typeof value !== "object" || value === null) continue;
    const values: unknown[] = Array.isArray(value) ? value : Object.values(value);
    if (Array.isArray(value)) elements += values.length;
    if (elements > mostElements) {
      throw conditions.problem(`must have at most ${mostElements} conditions and values to compare with`);
    }
    if (depth > MAX_JSON_DEPTH || rest.length + values.length > jsonLength) throw tooLong(conditions);
    for (const value of values) rest.push({ value, depth: depth + 1 });
  }
  if ((JSON.stringify(conditions.value) ?? "").length > jsonLength) throw tooLong(conditions);
}

const tooLong = (conditions: Place) =>
  conditions.problem(
    `must have at most ${SEGMENT_LIMITS.jsonLength} characters, and no list in ${MAX_JSON_DEPTH} others`,
  );

/**
 * Compiles conditions to a query for contacts, each once; every value is a parameter. It joins sets of addresses by full
 * joins: Postgres would read a large set once per contact with `in`, and with other joins whenever its statistics are older
 * than an import. The filters and `offset 0` keep it from replacing them.
 * @throws {ConditionProblem}
 */
export function contactsQuery(
  conditions: unknown,
  compilation: Compilation,
  only: RawBuilder<unknown> = sql`true`,
): RawBuilder<unknown> {
  const whole = new Place("conditions", conditions);
  refuseLarge(whole);
  const condition = compile(whole, compilation, 1);
  const { sets, among, tenant } = compilation;
  const contacts = among?.people ?? sql`select c.* from contacts c where ${ofTenant(tenant, "c")} and ${only}`;
  if (sets.length === 0 && !among) return sql`${contacts} and ${condition}`;
  const joins = sets.map((addresses, n) => {
    const alias = setAlias(n);
    const some = among ? sql`select s.email from (${addresses}) s where s.email in (${among.emails})` : addresses;
    return sql`full join (${some}) ${sql.ref(alias)} on ${sql.ref(`${alias}.email`)} = c.email`;
  });
  return sql`select c.* from (${contacts}) c ${sql.join(joins, sql` `)}
    where coalesce(c.id, '') <> '' and ${condition} offset 0`;
}
