import { type RawBuilder, type SqlBool, sql } from "kysely";
import { type ContactFieldType, EMAIL_STATUSES } from "../../../db/entities/contact.ts";
import { lookupAddress } from "../../address.ts";
import type { Compilation } from "./compilation.ts";
import type { Place } from "./place.ts";
import { dayText, startOfDay } from "./team-days.ts";

type Condition = RawBuilder<SqlBool>;
type Column = RawBuilder<unknown>;

/** It may come to null for a contact without a value, which does not meet it. */
type Test = (column: Column, value: Place, compilation: Compilation) => Condition;
/** Refuses a value of another type. */
type Operand = (value: Place, compilation: Compilation) => RawBuilder<unknown>;
type Operators = Readonly<Record<string, Test>>;

const ORDER = { gt: sql`>`, gte: sql`>=`, lt: sql`<`, lte: sql`<=` } as const;
type OrderOperator = keyof typeof ORDER;

const ordered = (compile: (operator: OrderOperator) => Test): Operators => ({
  gt: compile("gt"),
  gte: compile("gte"),
  lt: compile("lt"),
  lte: compile("lte"),
});

const EXISTS: Operators = {
  exists: (column, value) => sql`${column} is ${value.boolean() ? sql`not null` : sql`null`}`,
};

/** `ne` is the opposite of `eq` for every contact, also for one without a value. */
function equality(isOneOf: (column: Column, values: Place[], compilation: Compilation) => Condition): Operators {
  return {
    eq: (column, value, compilation) => isOneOf(column, [value], compilation),
    ne: (column, value, compilation) => sql`not coalesce(${isOneOf(column, [value], compilation)}, false)`,
    in: (column, list, compilation) => isOneOf(column, list.elements(), compilation),
  };
}

const equalityOf = (operand: Operand): Operators =>
  equality((column, values, compilation) => {
    const operands = values.map((value) => operand(value, compilation));
    return sql`${column} in (${sql.join(operands)})`;
  });

const orderOf = (operand: Operand): Operators =>
  ordered(
    (operator) => (column, value, compilation) => sql`${column} ${ORDER[operator]} ${operand(value, compilation)}`,
  );

function search(spelling: (text: string) => unknown): Operators {
  const partOf = (value: Place) => {
    const text = value.text();
    if (text === "") throw value.problem("must not be empty");
    return spelling(text);
  };
  return {
    contains: (column, value) => sql`strpos(${column}, ${partOf(value)}) > 0`,
    starts_with: (column, value) => sql`starts_with(${column}, ${partOf(value)})`,
  };
}

/** As JSON: Postgres compares its numbers exactly. */
const json = (value: number | boolean) => sql`${JSON.stringify(value)}::jsonb`;

const DAY_RULE = 'must be a day, such as "2026-01-31" or {"days_from_today": -7}';

const dateOperand: Operand = (value, { tenant }) => {
  const day = value.day();
  if (day === undefined) throw value.problem(DAY_RULE);
  return dayText(tenant.teamId, day);
};

const span = (column: Column, start: RawBuilder<unknown>, end: RawBuilder<unknown>): Condition =>
  sql`(${column} >= ${start} and ${column} < ${end})`;

/** An instant is compared with the first instant of the day, or of the day after it. */
const DAY_ORDER = {
  gt: { sign: sql`>=`, after: 1 },
  gte: { sign: sql`>=`, after: 0 },
  lt: { sign: sql`<`, after: 0 },
  lte: { sign: sql`<`, after: 1 },
} as const;

const instantTest =
  (operator: "eq" | OrderOperator): Test =>
  (column, value, { tenant: { teamId } }) => {
    const instant = value.instant();
    if (instant !== undefined) {
      const sign = operator === "eq" ? sql`=` : ORDER[operator];
      return sql`${column} ${sign} ${instant}::timestamptz`;
    }
    const day = value.day();
    if (day === undefined) throw value.problem(`${DAY_RULE}, or an instant such as "2026-01-31T12:00:00Z"`);
    if (operator === "eq") return span(column, startOfDay(teamId, day), startOfDay(teamId, day, 1));
    const { sign, after } = DAY_ORDER[operator];
    return sql`${column} ${sign} ${startOfDay(teamId, day, after)}`;
  };

const lower = (text: unknown) => sql`lower(${text}::text)`;
const ofLower = (operators: Operators): Operators =>
  Object.fromEntries(
    Object.entries(operators).map(([name, test]) => [name, (column, ...given) => test(lower(column), ...given)]),
  );

/** Without regard to capitals, as people write a city. */
const TEXT: Operators = {
  ...ofLower({ ...equalityOf((value) => lower(value.text())), ...search(lower) }),
  ...EXISTS,
};
const EMAIL: Operators = {
  ...equalityOf((value) => sql`${lookupAddress(value.text())}`),
  ...search((text) => text.toLowerCase().normalize("NFC")),
  ...EXISTS,
};
const STATUS: Operators = { ...equalityOf((value) => sql`${value.word(EMAIL_STATUSES)}`), ...EXISTS };
const NUMBER: Operators = {
  ...equalityOf((value) => json(value.number())),
  ...orderOf((value) => json(value.number())),
  ...EXISTS,
};
const BOOLEAN: Operators = { ...equalityOf((value) => json(value.boolean())), ...EXISTS };
const DATE: Operators = {
  ...equalityOf(dateOperand),
  ...orderOf(dateOperand),
  within_days: (column, value, { tenant: { teamId } }) =>
    sql`${column} between ${dayText(teamId, -value.days(0))} and ${dayText(teamId, 0)}`,
  ...EXISTS,
};
const INSTANT: Operators = {
  ...equality((column, values, compilation) => {
    const tests = values.map((value) => instantTest("eq")(column, value, compilation));
    return sql`(${sql.join(tests, sql` or `)})`;
  }),
  ...ordered(instantTest),
  within_days: (column, value, { tenant: { teamId } }) =>
    span(column, startOfDay(teamId, -value.days(0)), startOfDay(teamId, 0, 1)),
  ...EXISTS,
};

const COLUMNS: ReadonlyMap<unknown, { column: Column; operators: Operators }> = new Map([
  ["email", { column: sql`c.email`, operators: EMAIL }],
  ["first_name", { column: sql`c.first_name`, operators: TEXT }],
  ["last_name", { column: sql`c.last_name`, operators: TEXT }],
  ["email_status", { column: sql`c.email_status`, operators: STATUS }],
  ["created_at", { column: sql`c.created_at`, operators: INSTANT }],
  ["updated_at", { column: sql`c.updated_at`, operators: INSTANT }],
]);

const asText = (name: string): Column => sql`(c.fields ->> ${name}::text)`;
const asJson = (name: string): Column => sql`(c.fields -> ${name}::text)`;

const CUSTOM: { readonly [Type in ContactFieldType]: { column: (name: string) => Column; operators: Operators } } = {
  text: { column: asText, operators: TEXT },
  number: { column: asJson, operators: NUMBER },
  boolean: { column: asJson, operators: BOOLEAN },
  // Days in this form sort as text does, byte by byte.
  date: { column: (name) => sql`${asText(name)} collate "C"`, operators: DATE },
};

const CUSTOM_PREFIX = "fields.";

function fieldOf(place: Place, { declared }: Compilation): { column: Column; operators: Operators } {
  const { value } = place;
  const known = COLUMNS.get(value);
  if (known) return known;
  const name = typeof value === "string" && value.startsWith(CUSTOM_PREFIX) ? value.slice(CUSTOM_PREFIX.length) : "";
  const type = declared.get(name);
  if (type === undefined) {
    throw place.problem(
      `must be ${[...COLUMNS.keys()].join(", ")} or ${CUSTOM_PREFIX} with the name of a declared custom field${name && `, and there is no field ${name}`}`,
    );
  }
  const { column, operators } = CUSTOM[type];
  return { column: column(name), operators };
}

/** Compiles `{"field": …, "op": …, "value": …}`: true or false for every contact, never null. @throws {ConditionProblem} */
export function fieldCondition(place: Place, compilation: Compilation): Condition {
  place.refuseBeside("field", "op", "value");
  const { column, operators } = fieldOf(place.at("field"), compilation);
  const test = place.at("op").choice(operators);
  return sql`coalesce(${test(column, place.at("value"), compilation)}, false)`;
}
