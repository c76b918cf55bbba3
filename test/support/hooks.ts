import { backdoor, closeAll } from "./factories.ts";
import { findChanging, findUnscoped } from "./statements/check.ts";
import { holdSchedules } from "./temporal.ts";

/** Checks that every statement that the stack ran for the tests keeps to one tenant. */
async function statementsKeepToTheirTenant(): Promise<void> {
  const folder = process.env["STATEMENTS_DIR"];
  if (folder === undefined) return;
  const { orm } = await backdoor();
  const found = await findUnscoped(folder, orm.em.fork());
  if (found.length === 0) return;
  throw new Error(
    [
      `${found.length} statements on tenants' tables lack a tenant column. Add ofTenant(…) of db/tenant.ts to each, or an`,
      "exception with its reason to test/support/statements/exceptions.ts.",
      ...found.map((one) => `  ${one}`),
    ].join("\n"),
  );
}

/** Checks that a migration which adds a column breaks no statement that running processes have prepared. */
async function preparedStatementsNameTheirColumns(): Promise<void> {
  const folder = process.env["STATEMENTS_DIR"];
  if (folder === undefined) return;
  const { orm } = await backdoor();
  const found = await findChanging(folder, orm.em.fork());
  if (found.length === 0) return;
  throw new Error(
    [
      `The result of ${found.length} prepared statements changes with the columns of a table. Name the columns instead of *:`,
      ...found.map((one) => `  ${one}`),
    ].join("\n"),
  );
}

/** Loaded by mocha before the tests; what they opened is closed after the last one. */
export const mochaHooks = {
  beforeAll: [holdSchedules],
  afterAll: [statementsKeepToTheirTenant, preparedStatementsNameTheirColumns, closeAll],
};
