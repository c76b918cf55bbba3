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
  const condition = compile(new Place("conditions", conditions), compilation, 1);
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
