import { type RawBuilder, type SqlBool, sql } from "kysely";
import { ofTenant } from "../../../db/orm.ts";
import { type Compilation, SEGMENT_LIMITS, setAlias } from "./compilation.ts";
import { fieldCondition } from "./field-conditions.ts";
import { Place } from "./place.ts";
import { eventCondition, listCondition } from "./set-conditions.ts";

type Compile = (place: Place, compilation: Compilation, depth: number) => RawBuilder<SqlBool>;

/** Compiles `all` and `any`. */
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

/** Compiles the kinds of conditions, by the property that only this kind has. */
const KINDS: Readonly<Record<string, Compile>> = {
  all: combine("all", sql` and `),
  any: combine("any", sql` or `),
  not: (place, compilation, depth) => {
    place.refuseBeside("not");
    return sql`(not ${compile(place.at("not"), compilation, depth + 1)})`;
  },
  field: leaf(fieldCondition),
  list: leaf(listCondition),
  event: leaf(eventCondition),
};

/** Compiles a condition that contains no others. */
function leaf(compileOne: (place: Place, compilation: Compilation) => RawBuilder<SqlBool>): Compile {
  return (place, compilation) => {
    compilation.count("conditions", place);
    return compileOne(place, compilation);
  };
}

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

/**
 * Compiles a segment's conditions to a query for its contacts, with all their columns, each contact once. Every value is a
 * parameter.
 *
 * The query joins the sets of addresses. With `in` or `exists` inside `or` and `not`, Postgres would read a large set once
 * per contact. The joins are full joins, because Postgres cannot execute these as nested loops: while its statistics are
 * older than an import or a send, it expects one contact and one address, and chooses a nested loop for any other join.
 * The filters on `c` and the sets are written so that Postgres cannot replace the full joins by other joins; `offset 0`
 * prevents it from doing so because of an outer query.
 * @param compilation collects the fields and resources that the conditions name
 * @throws {ConditionProblem}
 */
export function contactsQuery(conditions: unknown, compilation: Compilation): RawBuilder<unknown> {
  const condition = compile(new Place("conditions", conditions), compilation, 1);
  const contacts = sql`select c.* from contacts c where ${ofTenant(compilation.tenant, "c")}`;
  const { sets } = compilation;
  if (sets.length === 0) return sql`${contacts} and ${condition}`;
  const joins = sets.map((addresses, n) => {
    const alias = setAlias(n);
    return sql`full join (${addresses}) ${sql.ref(alias)} on ${sql.ref(`${alias}.email`)} = c.email`;
  });
  return sql`select c.* from (${contacts}) c ${sql.join(joins, sql` `)}
    where coalesce(c.id, '') <> '' and ${condition} offset 0`;
}
