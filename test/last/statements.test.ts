import assert from "node:assert/strict";
import { readStatements } from "../support/statements/check.ts";

/** The hooks of its mocha (`test/support/hooks.ts`) check the statements; this says that there are some to check. */
describe("The statements of all tests", () => {
  it("were written down by the API and the workers", () => {
    const folder = process.env["STATEMENTS_DIR"];
    assert.ok(folder);
    const programs = new Set(readStatements(folder).map(({ program }) => program));
    assert.ok(programs.has("api") && programs.has("workers"), [...programs].join());
  });
});
