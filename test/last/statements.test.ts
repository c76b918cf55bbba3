import assert from "node:assert/strict";
import { backdoor } from "../support/factories.ts";
import { findChanging, findUnscoped, readStatements } from "../support/statements/check.ts";

/** Runs after all others: looks at the statements that the processes of the stacks ran for them. */
describe("The statements of all tests", () => {
  const folder = process.env["STATEMENTS_DIR"] ?? assert.fail("STATEMENTS_DIR is not set: run with npm test");

  it("were written down by the API and the workers", () => {
    const programs = new Set(readStatements(folder).map(({ program }) => program));
    assert.ok(programs.has("api") && programs.has("workers"), [...programs].join());
  });

  it("keep to one tenant: add ofTenant(…) of db/tenant.ts, or an exception with its reason", async () => {
    assert.deepEqual(await findUnscoped(folder, (await backdoor()).orm.em.fork()), []);
  });

  it("name their columns instead of *: a migration must not change the result of a prepared one", async () => {
    assert.deepEqual(await findChanging(folder, (await backdoor()).orm.em.fork()), []);
  });
});
