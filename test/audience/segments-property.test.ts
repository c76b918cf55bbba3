import assert from "node:assert/strict";
import fc from "fast-check";
import { sql } from "kysely";
import { DateTime } from "luxon";
import { SUBSCRIPTION_STATUSES } from "../../db/entities/audience.ts";
import { EMAIL_STATUSES } from "../../db/entities/contact.ts";
import { ENGAGEMENT_KINDS } from "../../db/entities/engagement.ts";
import { type EntityManager, kysely, type Tenant } from "../../db/orm.ts";
import { transaction } from "../../db/transaction.ts";
import { normaliseAddress } from "../../domain/address.ts";
import { createSegment, segmentContacts } from "../../domain/audience/segments/segments.ts";
import { newId } from "../../domain/ids.ts";
import { api, type Json } from "../support/api.ts";
import { declareFields } from "../support/contacts.ts";
import { makeTeam, type TestTeam, unique } from "../support/factories.ts";
import { isLong } from "../support/long.ts";
import { SEED } from "../support/seed.ts";
import { type StoredPerson, storePeople } from "./segments.ts";

const RUNS = isLong() ? 240 : 40;
const CONTACTS = 120;
/** On a day of November its midnight comes twice, on one of March it does not come. */
const ZONE = "America/Havana";

const FIELDS = { city: "text", orders: "number", vip: "boolean", born: "date" } as const;
/** With characters that mean something in SQL, in a pattern and to a driver. */
const TEXTS = [
  "",
  "Rome",
  "rome",
  "ROME ",
  "' or '1'='1",
  "'; drop table contacts; --",
  "100%",
  "a_b",
  "\\",
  "$1",
  "Köln",
];
const NUMBERS = [0, -1.5, 0.1, 0.2, 0.1 + 0.2, 1e21, 5e-324, 7, Number.MAX_SAFE_INTEGER];
const EVENTS = ["received", ...ENGAGEMENT_KINDS] as const;

interface World {
  tenant: Tenant;
  lists: string[];
  resources: string[];
  people: StoredPerson[];
  days: string[];
  instants: string[];
  /** The start of the transaction, which all conditions take as now. */
  now: DateTime;
}

/** The plain meaning of a condition, apart from its SQL. */
function holds(condition: Json, person: StoredPerson, world: World): boolean {
  if (condition.all) return condition.all.every((part: Json) => holds(part, person, world));
  if (condition.any) return condition.any.some((part: Json) => holds(part, person, world));
  if (condition.not) return !holds(condition.not, person, world);
  if (condition.list) return person.lists[condition.list] === (condition.status ?? "CONFIRMED");
  if (condition.event) {
    const { event, resource, within_days: within } = condition;
    return person.events.some(
      (each) =>
        each.event === event &&
        (resource === undefined || each.resource === resource) &&
        (within === undefined || dayOfInstant(each.at) >= dayFromToday(world, -within)),
    );
  }
  return fieldHolds(condition, person, world);
}

const dayOfInstant = (at: string): string => DateTime.fromISO(at, { zone: ZONE }).toISODate() ?? "";
const dayFromToday = ({ now }: World, days: number): string => now.plus({ days }).toISODate() ?? "";

function fieldHolds({ field, op, value }: Json, person: StoredPerson, world: World): boolean {
  const name: string = field;
  const own: Json = name.startsWith("fields.")
    ? person.fields[name.slice("fields.".length)]
    : (person as unknown as Json)[name];
  const actual: Json = own ?? undefined;
  if (op === "exists") return (actual !== undefined) === value;
  if (op === "ne") return !fieldHolds({ field, op: "eq", value }, person, world);
  if (actual === undefined) return false;
  if (op === "in") return value.some((each: Json) => fieldHolds({ field, op: "eq", value: each }, person, world));
  const isInstant = name.endsWith("_at");
  if (op === "within_days") {
    const day = isInstant ? dayOfInstant(actual) : actual;
    return day >= dayFromToday(world, -value) && day <= dayFromToday(world, 0);
  }
  const given = typeof value === "object" ? dayFromToday(world, value.days_from_today) : value;
  if (op === "contains" || op === "starts_with") {
    const part = name === "email" ? given.toLowerCase().normalize("NFC") : lower(given);
    return op === "contains" ? lower(actual).includes(part) : lower(actual).startsWith(part);
  }
  if (isInstant) {
    return given.includes("T")
      ? compare(op, Date.parse(actual), Date.parse(given))
      : compare(op, dayOfInstant(actual), given);
  }
  if (name === "email") return compare(op, actual, normaliseAddress(given) ?? given.trim().toLowerCase());
  return name === "email_status" ? compare(op, actual, given) : compare(op, lower(actual), lower(given));
}

/** One character for each, as Postgres does it. */
const lower = (value: Json): Json =>
  typeof value === "string" ? Array.from(value, (char) => Array.from(char.toLowerCase())[0]).join("") : value;

function compare(op: string, left: Json, right: Json): boolean {
  if (op === "eq") return left === right;
  if (op === "gt") return left > right;
  if (op === "gte") return left >= right;
  return op === "lt" ? left < right : left <= right;
}

function instantsAround(days: readonly string[]): string[] {
  return days.flatMap((day) => {
    const start = DateTime.fromISO(day, { zone: ZONE }).startOf("day");
    return [-3_600_000, -1, 0, 1, 3_599_999, 3_600_000].map((ms) => start.toUTC().plus(ms).toISO() ?? "");
  });
}

async function makeWorld(team: TestTeam): Promise<World> {
  await declareFields(team, FIELDS);
  const tenant: Tenant = { teamId: team.team.id, environment: "LIVE" };
  const client = api(team.keys.live);
  const lists = await Promise.all(
    ["A", "B"].map(async (name) => (await client.post("/lists", { name, optin: "SINGLE" })).body.data.id as string),
  );
  const resources = await Promise.all(
    ["A", "B"].map(async (name) => (await client.post("/newsletters", { name })).body.data.id as string),
  );
  const now = DateTime.now().setZone(ZONE);
  const today = [-8, -7, -1, 0, 1, 7].map((days) => now.plus({ days }).toFormat("yyyy-MM-dd"));
  const days = [...today, "2026-03-07", "2026-03-08", "2026-03-09", "2026-10-31", "2026-11-01", "2026-11-02"];
  const instants = instantsAround(days);
  const one = <T>(...values: T[]) => fc.constantFrom(...values);
  const values = { city: one(...TEXTS), orders: one(...NUMBERS), vip: fc.boolean(), born: one(...days) };
  const statuses = Object.fromEntries(lists.map((id) => [id, one(...SUBSCRIPTION_STATUSES)]));
  const events = resources.flatMap((resource) => EVENTS.map((event) => ({ event, resource })));
  const person = fc.record({
    first_name: fc.option(one(...TEXTS), { freq: 3 }),
    last_name: fc.option(one(...TEXTS), { freq: 3 }),
    fields: fc.record(values, { requiredKeys: [] }),
    email_status: one(...EMAIL_STATUSES),
    created_at: one(...instants),
    updated_at: one(...instants),
    lists: fc.record(statuses, { requiredKeys: [] }),
    events: fc
      .subarray(events)
      .chain((some) => fc.tuple(...some.map((event) => one(...instants).map((at) => ({ ...event, at }))))),
  });
  const stem = unique("p");
  const people = fc.sample(person, { seed: SEED, numRuns: CONTACTS }).map((facts, i) => ({
    ...facts,
    id: newId("contact"),
    email: `${i % 3 === 0 ? "ä" : "a"}.${stem}-${i}@${i % 2 === 0 ? "example.com" : "bücher.example"}`,
  }));
  await storePeople(team.em, tenant, people);
  return { tenant, lists, resources, people, days, instants, now };
}

/** Conditions of every kind, whose values are often those of contacts. */
function conditionsOf({ lists, resources, people, days, instants }: World): fc.Arbitrary<Json> {
  const one = <T>(...values: T[]) => fc.constantFrom(...values);
  const text = fc.oneof(
    { weight: 5, arbitrary: one(...TEXTS) },
    fc.string({ unit: "grapheme", maxLength: 5 }).filter((word) => !/\p{Cc}/u.test(word)),
  );
  const number = fc.oneof(one(...NUMBERS), fc.double({ noNaN: true, noDefaultInfinity: true }));
  const relative = fc.record({ days_from_today: fc.integer({ min: -9, max: 9 }) });
  const day = fc.oneof(one(...days, "0001-01-01", "9999-12-31"), relative);
  const addresses = people.map(({ email }) => email);
  const email = fc.oneof(one(...addresses, ...addresses.map((address) => ` ${address.toUpperCase()}`)), text);
  const part = text.filter((word) => word !== "");
  const within = fc.integer({ min: 0, max: 9 });
  const field = (
    names: fc.Arbitrary<string>,
    value: fc.Arbitrary<Json>,
    operators: Record<string, fc.Arbitrary<Json>>,
  ) =>
    fc.oneof(
      ...Object.entries({
        eq: value,
        ne: value,
        in: fc.array(value, { minLength: 1, maxLength: 4 }),
        exists: fc.boolean(),
        ...operators,
      }).map(([op, values]) => fc.record({ field: names, op: fc.constant(op), value: values })),
    );
  const order = (value: fc.Arbitrary<Json>) => ({ gt: value, gte: value, lt: value, lte: value });
  const moment = fc.oneof(day, one(...instants));
  const leaf = fc.oneof(
    field(one("fields.city", "first_name", "last_name"), text, { contains: part, starts_with: part }),
    field(one("email"), email, { contains: part, starts_with: one("a.", "Ä", "x") }),
    field(one("email_status"), one("ACTIVE", "INVALID"), {}),
    field(one("fields.orders"), number, order(number)),
    fc.record({ field: one("fields.vip"), op: one("eq", "ne", "exists"), value: fc.boolean() }),
    field(one("fields.born"), day, { ...order(day), within_days: within }),
    field(one("created_at", "updated_at"), moment, { ...order(moment), within_days: within }),
    fc.record({ list: one(...lists), status: one(...SUBSCRIPTION_STATUSES) }, { requiredKeys: ["list"] }),
    fc.record({ event: one(...EVENTS), resource: one(...resources), within_days: within }, { requiredKeys: ["event"] }),
  );
  const group = (tie: fc.Arbitrary<unknown>) => fc.array(tie, { minLength: 1, maxLength: 3 });
  const { node } = fc.letrec((tie) => ({
    node: fc.oneof(
      { maxDepth: 3, withCrossShrink: true },
      leaf,
      fc.record({ all: group(tie("node")) }),
      fc.record({ any: group(tie("node")) }),
      fc.record({ not: tie("node") }),
    ),
  }));
  const joins = (condition: Json): number => JSON.stringify(condition).match(/"(?:list|event)":/g)?.length ?? 0;
  return (node as fc.Arbitrary<Json>).filter((condition) => joins(condition) <= 5);
}

describe("Segments against their plain meaning", () => {
  let team: TestTeam;
  let world: World;
  before(async () => {
    team = await makeTeam({ timeZone: ZONE });
    world = await makeWorld(team);
  });

  async function selected(em: EntityManager, definition: Json): Promise<string[]> {
    const { id } = await createSegment(em, world.tenant, { name: "any", conditions: definition });
    const { rows } = await sql<{ id: string }>`
      select c.id from (${await segmentContacts(em, world.tenant, id)}) c order by c.id`.execute(kysely(em));
    await em.execute("delete from segments where id = ?", [id]);
    return rows.map((row) => row.id);
  }

  it(`select exactly the contacts that meet them, and "not" exactly the others (seed ${SEED})`, async function () {
    this.timeout(120_000);
    const everyone = world.people.map(({ id }) => id).sort();
    await fc.assert(
      fc.asyncProperty(conditionsOf(world), (condition) =>
        transaction(team.em, async (em) => {
          const { rows } = await sql<{
            now: string;
          }>`select (extract(epoch from now()) * 1000)::bigint::text as now`.execute(kysely(em));
          const now = DateTime.fromMillis(Number(rows[0]?.now), { zone: ZONE });
          const expected = world.people
            .filter((person) => holds(condition, person, { ...world, now }))
            .map(({ id }) => id);
          assert.deepEqual(await selected(em, condition), expected.sort());
          const others = everyone.filter((id) => !expected.includes(id));
          assert.deepEqual(await selected(em, { not: condition }), others);
        }),
      ),
      { numRuns: RUNS, seed: SEED },
    );
  });
});
