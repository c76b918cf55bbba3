import assert from "node:assert/strict";
import { type Selectable, sql } from "kysely";
import { type Database, kysely, type MikroORM } from "../../db/orm.ts";
import { backdoor } from "../support/factories.ts";

type Rows = { [Table in keyof Database]: Selectable<Database[Table]> };

/** A value of each type of column, as the driver gives it; the compiler checks it against a column of that type. */
const VALUES = {
  text: "Köln" satisfies Rows["lists"]["name"],
  integer: 3 satisfies Rows["send_recipients"]["seq"],
  smallint: 200 satisfies NonNullable<Rows["webhook_deliveries"]["response_status"]>,
  "double precision": 0.25 satisfies NonNullable<Rows["sends"]["complaint_rate"]>,
  bigint: "9007199254740993" satisfies Rows["subscriptions"]["address_version"],
  boolean: true satisfies Rows["campaigns"]["is_drip"],
  jsonb: { city: "Köln", orders: 3, vip: true } satisfies Rows["contacts"]["fields"],
  "text[]": ["lists:read"] satisfies Rows["api_keys"]["granted_scopes"],
  "smallint[]": [1, 2] satisfies Rows["newsletters"]["send_days"],
  "timestamp with time zone": "2026-08-15 10:00:00.5+00" satisfies Rows["teams"]["created_at"],
  bytea: Buffer.from("Köln") satisfies Rows["import_parts"]["bytes"],
  date: "2026-08-15" satisfies Rows["confirmation_mails"]["day"],
} as const;

interface Found {
  table: string;
  name: string;
  type: string;
  nullable: boolean;
}

describe("Columns", () => {
  let orm: MikroORM;
  let found: Found[];
  before(async () => {
    ({ orm } = await backdoor());
    ({ rows: found } = await sql<Found>`
      select c.relname as table, a.attname as name, a.atttypid::regtype::text as type, not a.attnotnull as nullable
      from pg_attribute a join pg_class c on c.oid = a.attrelid
      where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and a.attnum > 0 and not a.attisdropped
        and c.relname not like 'mikro_orm_%'`.execute(kysely(orm.em.fork())));
  });

  it("are declared with the type and the null that they have", async () => {
    const declared = [...orm.getMetadata().getAll().values()].flatMap(({ tableName, props }) =>
      props.map(({ fieldNames, columnTypes, nullable = false }) => ({
        table: tableName,
        name: fieldNames[0] ?? "",
        type: (columnTypes[0] ?? "").replace(/\(.*\)/, "").replace("serial", "int"),
        nullable,
      })),
    );
    const names = [...new Set(declared.map(({ type }) => type))];
    const { rows } = await sql<{ name: string; type: string }>`
      select name, name::regtype::text as type from unnest(${names}::text[]) name`.execute(kysely(orm.em.fork()));
    const types = new Map(rows.map(({ name, type }) => [name, type]));
    const textOf = ({ table, name, type, nullable }: Found) => `${table}.${name} ${type}${nullable ? " null" : ""}`;
    assert.deepEqual(
      declared.map((column) => textOf({ ...column, type: types.get(column.type) ?? "" })).sort(),
      found.map(textOf).sort(),
    );
  });

  it("are read as values of the types that Kysely declares", async () => {
    assert.deepEqual([...new Set(found.map(({ type }) => type))].sort(), Object.keys(VALUES).sort());
    for (const [type, value] of Object.entries(VALUES)) {
      const given = Buffer.isBuffer(value) ? `\\x${value.toString("hex")}` : value;
      const { rows } = await sql<{ value: unknown }>`
        select value from json_to_record(${JSON.stringify({ value: given })}::json) as given (value ${sql.raw(type)})`.execute(
        kysely(orm.em.fork()),
      );
      assert.deepEqual(rows, [{ value }], type);
    }
  });
});
