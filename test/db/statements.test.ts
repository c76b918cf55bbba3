import assert from "node:assert/strict";
import { unscopedTables } from "../support/statements/scope.ts";

const TABLES = new Map([
  ["lists", new Set(["id", "team_id", "environment", "name"])],
  ["subscriptions", new Set(["list_id", "subscriber_id", "team_id", "environment", "status"])],
  ["newsletter_lists", new Set(["newsletter_id", "list_id"])],
  ["teams", new Set(["id", "name"])],
]);

/** Each statement with the tables that lack their tenant. */
const CASES: readonly (readonly [statement: string, unscoped: readonly string[]])[] = [
  ["select * from lists where team_id = $1 and environment = $2", []],
  [
    `select "l"."id" from "lists" as "l" where ("l"."team_id" = $1 and "l"."environment" = 'LIVE') and "l"."name" = $3`,
    [],
  ],
  ["select * from lists where team_id = $1", ["lists"]],
  ["select * from lists where id = $1", ["lists"]],
  ["select team_id, environment from lists where id = $1", ["lists"]],
  ["select * from lists where (team_id = $1 or environment = $2) and id = $3", ["lists"]],
  ["select * from lists where team_id <> $1 and environment = $2", ["lists"]],
  // A key leads from a row of the tenant to its other rows; another column does not.
  ["select * from subscriptions s join lists l on l.id = s.list_id where l.team_id = $1 and l.environment = $2", []],
  [
    "select * from subscriptions s join lists l on l.name = s.status where l.team_id = $1 and l.environment = $2",
    ["subscriptions"],
  ],
  ["select * from subscriptions s, lists l where l.team_id = $1 and l.environment = $2", ["subscriptions"]],
  ["select * from lists l join teams t on t.id = l.team_id where t.id = $1 and l.environment = $2", ["lists"]],
  [
    `select * from lists l where l.team_id = $1 and l.environment = $2
      and exists (select 1 from subscriptions s where s.list_id = l.id)`,
    [],
  ],
  ["select 1 where exists (select from lists where id = $1)", ["lists"]],
  [
    `select * from subscriptions where list_id in
      (select id from lists where team_id = $1 and environment = $2)`,
    [],
  ],
  ["select * from subscriptions where list_id in (select id from lists)", ["lists", "subscriptions"]],
  ["select x.id from (select id from lists where team_id = $1 and environment = $2) x", []],
  [
    `with mine as (select id from lists where team_id = $1 and environment = $2)
      update subscriptions s set status = 'PENDING' from mine where s.list_id = mine.id`,
    [],
  ],
  [
    "with one as (select id from lists where id = $1) delete from subscriptions s using one where s.list_id = one.id",
    ["lists", "subscriptions"],
  ],
  ["update lists set team_id = $1, environment = $2 where id = $3", ["lists"]],
  ["delete from lists where team_id = $1 and environment = $2 and id = $3", []],
  ["insert into lists (id, team_id, environment, name) values ($1, $2, $3, $4)", []],
  ["insert into lists (id, team_id, name) values ($1, $2, $3)", ["lists"]],
  ["insert into newsletter_lists (newsletter_id, list_id) select $1, id from lists", ["lists"]],
  // Tables without the two columns are no tenant's.
  ["select * from newsletter_lists where newsletter_id = $1", []],
];

describe("The look at statements", () => {
  for (const [statement, unscoped] of CASES) {
    const outcome = unscoped.length === 0 ? "passes" : `misses the tenant of ${unscoped.join(" and ")} in`;
    it(`${outcome} ${statement.replace(/\s+/g, " ")}`, async () => {
      assert.deepEqual(await unscopedTables(statement, TABLES), unscoped);
    });
  }
});
